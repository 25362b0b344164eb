"""What talks to the brokers of a cluster, in threads."""
