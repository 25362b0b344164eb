"""Backups of data directories, and their restore."""
