"""Consumers: single consumers, members of a consumer group, and readers of a range."""
