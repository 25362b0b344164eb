"""What operators see of a running node: metrics, status, audit and log lines."""
