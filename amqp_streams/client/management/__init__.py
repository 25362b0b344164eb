"""Requests to a node: `$info` and `$management`."""
