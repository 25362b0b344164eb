"""Converts rows to messages, and writes them to a log."""
