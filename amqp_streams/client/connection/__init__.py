"""Connections to nodes: byte streams, SASL, sessions and links, reconnection and redirects."""
