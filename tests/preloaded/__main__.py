"""[io] The preloaded process: imports everything, then forks a process for each request.

It does nothing else before a fork: no thread, no event loop, no open file, so that the forks begin as a fresh
interpreter does after its imports.
"""

import gc
import os
import socket
import sys
import time
from importlib import import_module
from typing import Final

from amqp_streams.cli import main as amqp_streams
from knative_gateway.cli import main as knative_gateway
from service_parts.command_line.program import Program
from tests.preloaded import first_node, requests
from tests.preloaded.becoming import become
from tests.preloaded.requests import Request

_IMPORTED_LATER: Final = ("encodings.idna", "knative_gateway.server", "service_parts.logging_setup")
"""By the programs, beside the commands."""


def _preload() -> None:
    for program in (amqp_streams, knative_gateway):
        assert isinstance(program, Program)
        for entry in program.table.values():
            import_module(entry.where.partition(":")[0])
    for name in _IMPORTED_LATER:
        import_module(name)
    # A collection in a fork would write to, and so copy, the pages of everything that is imported.
    gc.collect()
    gc.freeze()


def _forked(source: socket.socket) -> tuple[Request, list[int]] | None:
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


def main(descriptor: int) -> None:
    """Serve requests that come from a socket."""
    _preload()
    with socket.socket(fileno=descriptor) as source:
        received = _forked(source)
    if received is not None:
        first_node.prepare(received[0])
        become(*received)


if __name__ == "__main__":
    main(int(sys.argv[1]))
