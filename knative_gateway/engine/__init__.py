"""[io] The event log node, through its client."""
