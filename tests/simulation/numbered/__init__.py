"""Simulation of idempotent producers on several nodes on Kafka."""
