"""[io] HTTP requests to subscribers: names, connections, one POST and its answer."""
