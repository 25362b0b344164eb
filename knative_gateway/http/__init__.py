"""[io] The gateway's HTTP listener, and the assignment of paths to its parts."""
