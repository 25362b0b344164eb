"""The options of `format("amqpstreams")`, and what they mean together."""
