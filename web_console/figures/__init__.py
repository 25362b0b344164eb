"""Figures of logs, read once a second for all views of a session."""
