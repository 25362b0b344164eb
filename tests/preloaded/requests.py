"""[io] Requests for a process, from the one that wants it to the one that becomes it or forks it."""

import pickle
import signal
import socket
from collections.abc import Sequence
from typing import Final, NamedTuple

_MESSAGE_BYTES_MAX: Final = 1 << 20
_DESCRIPTORS_MAX: Final = 64


class Request(NamedTuple):
    """A process to start. Its stdin, stdout, stderr and `kept` come with the message, in this order."""

    code: str | None
    """What `-c` runs, else `module` is run."""
    module: str
    arguments: list[str]
    """sys.argv."""
    folder: str
    environment: dict[bytes, bytes]
    kept: list[int]
    """The numbers of inherited descriptors."""
    new_session: bool
    asks: int
    """The process that asks."""
    ends_with: signal.Signals | None
    """What the kernel sends the new process when the process that asks ends."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a way for requests: each message is one."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(to: socket.socket, request: Request, descriptors: Sequence[int]) -> None:
    """Send a request with its descriptors."""
    socket.send_fds(to, [pickle.dumps(tuple(request))], descriptors)


def receive(source: socket.socket) -> tuple[Request, list[int]] | None:
    """The next request; None when the process that sends them has ended."""
    message, descriptors, _, _ = socket.recv_fds(source, _MESSAGE_BYTES_MAX, _DESCRIPTORS_MAX)
    return (Request(*pickle.loads(message)), descriptors) if message else None
