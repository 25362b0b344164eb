"""How much a peer or a user may have: login attempts, links, bytes per second."""
