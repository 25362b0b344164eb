"""Consumers in groups, with epochs and with durable subscriptions, while nodes and brokers fail."""
