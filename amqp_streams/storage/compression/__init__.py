"""Closed segments that are compressed on the disk: docs/decisions/0020-compressed-segments.md."""
