"""The parts of a store on Apache Kafka: names, records, settings, and batches out and in."""
