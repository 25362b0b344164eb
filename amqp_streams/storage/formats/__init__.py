"""The layout of records on the disk and in memory. Pure."""
