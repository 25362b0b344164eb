"""How an event is written as a record of Kafka, in two formats."""
