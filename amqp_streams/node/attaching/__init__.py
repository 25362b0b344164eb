"""One consumer link at a node that asks others about it, from its attach on."""
