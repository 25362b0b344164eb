"""[io] Pushing what is in the logs to subscribers."""
