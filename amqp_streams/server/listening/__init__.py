"""Byte streams to peers: listening sockets, TLS, WebSocket, and the HTTP side of the node."""
