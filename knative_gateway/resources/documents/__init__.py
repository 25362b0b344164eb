"""JSON and YAML documents of clients, read with limits. Pure."""
