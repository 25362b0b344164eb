"""Byte streams to clients: listening sockets, TLS, WebSocket, and the admin listener."""
