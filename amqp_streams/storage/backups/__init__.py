"""Backups of a data directory whose node runs, and their restore: docs/decisions/0025-backup.md."""
