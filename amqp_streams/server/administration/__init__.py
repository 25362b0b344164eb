"""Requests to `$management` about the running node: its connections."""
