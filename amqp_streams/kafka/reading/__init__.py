"""Reads of records: what is in memory, and whose read is next."""
