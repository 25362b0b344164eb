"""What nodes share on Kafka: the state topic, the transactions of its buckets, and the group of the nodes."""
