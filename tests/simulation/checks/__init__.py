"""What must hold: events, cursors, groups, filters, information, memory, and progress."""
