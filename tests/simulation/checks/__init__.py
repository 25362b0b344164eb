"""The invariants of events, cursors, groups, filters, information, memory and progress."""
