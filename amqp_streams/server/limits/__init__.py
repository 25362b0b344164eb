"""How much a client or a user may use: login attempts, connections, links, bytes per second."""
