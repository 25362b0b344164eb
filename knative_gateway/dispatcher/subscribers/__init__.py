"""[io] One subscriber: which events it receives, when its deliveries begin, and how each delivery ends."""
