"""Changes of logs: their parts on the disk, and their order."""
