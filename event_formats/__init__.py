"""CloudEvents 1.0: events in memory, and their HTTP binding. Pure."""
