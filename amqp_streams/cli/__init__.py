"""The command line: amqp-streams."""
