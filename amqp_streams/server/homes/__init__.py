"""The homes of this node: the decisions of `amqp_streams/homes`, connected with Kafka."""
