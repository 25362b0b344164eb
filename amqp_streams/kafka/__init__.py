"""The parts of a store on Apache Kafka that decide: names, records, settings, batches. Pure."""
