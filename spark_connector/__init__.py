"""format("amqpstreams"): the event log as a Spark data source."""
