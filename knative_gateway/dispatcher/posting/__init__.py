"""[io] HTTP requests to subscribers: name lookup, connections, one request and its answer."""
