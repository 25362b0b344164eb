"""The ingress: it accepts events over HTTP, and appends them to the logs of Brokers and Channels."""
