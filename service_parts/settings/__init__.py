"""Settings: where they are read, in which order, and how an error names them."""
