"""Copies a log from a data directory to Kafka."""
