"""What the Event Stream Extensions say about links, as pure functions and values."""
