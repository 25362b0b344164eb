"""What the Event Stream Extensions say about links: decisions without I/O, a clock or an engine. Time is an argument."""
