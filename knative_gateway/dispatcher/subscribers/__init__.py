"""[io] One subscriber: which events it gets, how many at once, and what came of each."""
