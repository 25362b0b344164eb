"""Links at a node that asks others about them, from the attach on."""
