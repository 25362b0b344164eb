"""Who is logged in: sessions with bounds, and their connections to the node."""
