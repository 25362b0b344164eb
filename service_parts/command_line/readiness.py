"""[io] Reports to the parent process that a service listens, and where.

In a file, on a descriptor, or to systemd.

The report is one line, a JSON object, for example {"amqp": ["127.0.0.1:5672"]}. A reader never sees a part of
the file, because it is written under another name and renamed. It is removed when the service ends.
"""

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

Ready = Callable[[Mapping[str, object]], None]


@contextmanager
def announcer(*, file: Path | None, descriptor: int | None, notify_socket: str | None) -> Iterator[Ready]:
    """Yield the function that the service calls when it listens.

    `notify_socket`: the variable `NOTIFY_SOCKET` that systemd sets.
    """

    def ready(addresses: Mapping[str, object]) -> None:
        line = json.dumps(addresses) + "\n"
        if file is not None:
            # In the same folder: a rename between file systems is not atomic.
            beside = file.with_name(f".{file.name}.{os.getpid()}")
            beside.write_text(line, encoding="utf-8")
            beside.replace(file)
        if descriptor is not None:
            os.write(descriptor, line.encode())
            # The parent reads until the end of the pipe.
            os.close(descriptor)
        if notify_socket:
            _notify(notify_socket, "READY=1")

    if file is not None:
        # A file of an earlier run would report a service that does not listen yet.
        file.unlink(missing_ok=True)
    try:
        yield ready
    finally:
        if file is not None:
            file.unlink(missing_ok=True)


def _notify(address: str, state: str) -> None:
    # An address that begins with @ is in Linux's abstract namespace, where a zero byte replaces the @.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as datagrams:
        datagrams.connect("\0" + address[1:] if address.startswith("@") else address)
        datagrams.send(state.encode())
