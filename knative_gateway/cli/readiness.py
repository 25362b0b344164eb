"""Telling whoever started the gateway that it listens, and where: a file, a descriptor, systemd.

The message is one line, the JSON object {"http": ["127.0.0.1:8080"], "amqp": ["127.0.0.1:5672"]}. The file appears whole; it goes when the
gateway ends.
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
    """What the server calls when it listens. `notify_socket` is systemd's `NOTIFY_SOCKET`."""

    def ready(addresses: Mapping[str, object]) -> None:
        line = json.dumps(addresses) + "\n"
        if file is not None:
            beside = file.with_name(f".{file.name}.{os.getpid()}")
            beside.write_text(line, encoding="utf-8")
            beside.replace(file)
        if descriptor is not None:
            os.write(descriptor, line.encode())
            os.close(descriptor)
        if notify_socket:
            # An address that starts with @ is in Linux's abstract namespace, written with a leading zero byte.
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as datagrams:
                datagrams.connect("\0" + notify_socket[1:] if notify_socket.startswith("@") else notify_socket)
                datagrams.send(b"READY=1")

    if file is not None:
        file.unlink(missing_ok=True)
    try:
        yield ready
    finally:
        if file is not None:
            file.unlink(missing_ok=True)
