"""Producers: events that were sent and are not settled yet, in order, and sent again after a loss."""
