"""The clients of a node: an AMQP connection of their own, and what they do with it."""
