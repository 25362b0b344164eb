"""[io] Connections to nodes, and what reading asks of them."""
