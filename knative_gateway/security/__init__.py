"""Who may do what, and where events may be pushed to."""
