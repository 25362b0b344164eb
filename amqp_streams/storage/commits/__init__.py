"""[io] Group commit: the journal, and moving records from the journal to the segments."""
