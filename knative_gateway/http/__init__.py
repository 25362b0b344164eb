"""[io] The gateway's HTTP listener, and what it serves on which path."""
