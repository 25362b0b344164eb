"""Contexts: the stored settings of a connection, which a command names instead of repeating its options."""
