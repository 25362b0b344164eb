"""[io] Connections to nodes, and the requests that reading sends."""
