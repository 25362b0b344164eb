"""A gateway with several worker processes: the parent that starts them, and what they have in common."""
