"""[io] The event log node as the gateway uses it, through its client."""
