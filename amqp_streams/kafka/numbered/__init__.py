"""Idempotent producers on Kafka: their events and their highest numbers in one transaction."""
