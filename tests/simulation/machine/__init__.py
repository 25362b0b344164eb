"""The machine under a node: time, event loop, disk, network, and the process that may die at any moment."""
