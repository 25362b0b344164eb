"""Targets: The Spark source."""
