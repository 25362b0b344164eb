"""[io] Forks a process for each request, without anything else in between."""

import os
import socket
import time

from tests.preloaded import requests
from tests.preloaded.requests import Request


def forked(source: socket.socket) -> tuple[Request, list[int]] | None:
    """Fork a process for each request.

    Returns in a fork, with what it is to become; and at the end of the process that asks, with None.
    """
    while (received := requests.receive(source)) is not None:
        reading, writing = os.pipe()
        between = os.fork()
        if not between:
            parent = os.getpid()
            pid = os.fork()
            if not pid:
                # Code that asks for its parent must see the process that asked.
                while os.getppid() == parent:
                    time.sleep(0.0005)
                os.close(reading)
                os.close(writing)
                return received
            os.write(writing, str(pid).encode())
            os._exit(0)
        # When it has ended, its child has got the process that asks as parent.
        os.waitpid(between, 0)
        source.send(os.read(reading, 64))
        for descriptor in (reading, writing, *received[1]):
            os.close(descriptor)
    return None
