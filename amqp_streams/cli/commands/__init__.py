"""The commands of `amqp-streams`, one module each."""
