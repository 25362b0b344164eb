"""The embedded log: record batches in segments, one journal for group commit, recovery and retention."""
