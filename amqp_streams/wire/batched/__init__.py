"""What batches in both directions have in common, and batches that producers send."""
