"""The options of `format("amqpstreams")`, and the settings of a query."""
