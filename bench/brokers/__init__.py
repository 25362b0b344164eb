"""Nodes on a real Kafka cluster whose parts fail: what clients see, and whether an accepted event is lost."""
