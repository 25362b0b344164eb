"""The client of the event log: producers, consumers, information and management."""
