"""What a running node shows: logs, metrics, status."""
