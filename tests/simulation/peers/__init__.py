"""The clients of a node: their AMQP connection, and what they do with it."""
