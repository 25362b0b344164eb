"""[io] The preloaded process: imports everything, then forks a process for each request.

It does nothing else before a fork: no thread, no event loop, no open file, so that the forks begin as a fresh
interpreter does after its imports.
"""

import gc
import socket
import sys
from importlib import import_module
from typing import Final

from service_parts.command_line.program import Program
from tests.preloaded import journals
from tests.preloaded.becoming import become
from tests.preloaded.children import prepare
from tests.preloaded.forking import forked

_PROGRAMS: Final = ("amqp_streams.cli", "knative_gateway.cli")
_IMPORTED_LATER: Final = (
    "encodings.idna",
    "knative_gateway.running.parent",
    "knative_gateway.server",
    "service_parts.logging_setup",
)
"""By the programs, beside the commands."""


def _preload() -> None:
    # Collections during the imports find nothing, and would take a sixth of the time.
    gc.disable()
    for name in _PROGRAMS:
        program = import_module(name).main
        assert isinstance(program, Program)
        for entry in program.table.values():
            import_module(entry.where.partition(":")[0])
    for name in _IMPORTED_LATER:
        import_module(name)
    journals.make_small()
    # A collection in a fork would write to, and so copy, the pages of everything that is imported.
    gc.collect()
    gc.freeze()
    gc.enable()


def main(descriptor: int) -> None:
    """Serve requests that come from a socket."""
    _preload()
    with socket.socket(fileno=descriptor) as source:
        received = forked(source)
    if received is not None:
        prepare(*received)
        become(*received)


if __name__ == "__main__":
    main(int(sys.argv[1]))
