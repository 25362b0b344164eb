"""Events out: starts, reading, and settlements of consumers."""
