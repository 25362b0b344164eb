"""Targets: The event log node and its client."""
