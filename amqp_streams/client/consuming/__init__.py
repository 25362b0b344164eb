"""Consumers: single ones, members of a consumer group, and ranges of a partition."""
