"""Rows as messages, and their way into a log."""
