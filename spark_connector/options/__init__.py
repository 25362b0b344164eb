"""The options of `format("amqpstreams")`, and the settings that they make together."""
