"""What to read: offsets, ranges and micro-batches. Pure."""
