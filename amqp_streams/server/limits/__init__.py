"""How much a client or a user may use: login attempts, links, bytes per second."""
