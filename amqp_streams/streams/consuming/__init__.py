"""Events out: where consumers start, what they hold, and what they have settled."""
