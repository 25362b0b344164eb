"""[io] One subscriber: which events it gets, when its deliveries begin, and how each of them ends."""
