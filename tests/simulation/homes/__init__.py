"""Several nodes that share consumer groups on a model of Kafka, from one seed: `make simhomes SEEDS=200`."""
