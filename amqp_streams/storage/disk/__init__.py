"""[io] Files, free space, and the thread that writes and syncs."""
