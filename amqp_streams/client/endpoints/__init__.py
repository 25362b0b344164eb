"""The endpoints of a client: their order, the addresses of their names, and the search for one that works."""
