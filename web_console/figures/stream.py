"""Server-sent events as bytes. Pure."""

import json


def server_event(name: str, data: object) -> bytes:
    """Return an event with JSON data. JSON has no line breaks, so the data is one line."""
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


KEEP_ALIVE: bytes = b": \n\n"
"""A comment. It shows a lost connection to the server."""
