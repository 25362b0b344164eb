"""The node on Kafka beside what people could use instead, in one run: `python -m bench.kafka_store`."""
