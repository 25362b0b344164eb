"""Programs for those who work on this repository."""
