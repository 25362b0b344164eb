"""JSON and YAML documents as they are sent, read with limits. Pure."""
