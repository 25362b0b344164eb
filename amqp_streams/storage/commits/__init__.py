"""[io] Group commit: the journal, and the way from the journal to the segments."""
