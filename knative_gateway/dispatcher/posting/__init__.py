"""[io] HTTP requests to subscribers: host names, connections, one request and its answer."""
