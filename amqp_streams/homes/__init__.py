"""Homes: which of several nodes decides about a consumer group or a cursor, and until when. Decision 0026."""
