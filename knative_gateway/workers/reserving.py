"""[io] The addresses that all workers listen on. The parent process reserves them.

Each worker has a listening socket of its own with SO_REUSEPORT, and the kernel distributes new connections.
The parent binds the addresses without listening: so a port that the kernel chose stays the same when all
workers end, and an address in use is reported once.
"""

import errno
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from knative_gateway.errors import ConfigError, InUseError
from service_parts.binding import tcp_socket
from service_parts.settings.listeners import Listener


@contextmanager
def reserved(listeners: Sequence[Listener]) -> Iterator[tuple[Listener, ...]]:
    """Reserve addresses. Yields them with the ports that the kernel chose.

    Raises:
        ConfigError: an address cannot be bound; InUseError: another process listens on it.
    """
    with ExitStack() as stack:
        yield tuple(_bound(stack, found) for listener in listeners for found in _resolved(listener))


def _resolved(listener: Listener) -> list[tuple[Listener, Any]]:
    try:
        found = socket.getaddrinfo(
            listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise _refused(listener, error) from error
    return [(listener, each) for each in dict.fromkeys(found)]


def _bound(stack: ExitStack, found: tuple[Listener, Any]) -> Listener:
    listener, (family, _, _, _, address) = found
    try:
        if listener.port:
            # Without SO_REUSEPORT: with it, another gateway of this user could listen on the same port, and
            # each would get a part of the connections.
            with tcp_socket(family) as probe:
                probe.bind(address)
                probe.listen(1)
        bound = stack.enter_context(tcp_socket(family))
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
    except OSError as error:
        raise _refused(listener, error) from error
    host, port = bound.getsockname()[:2]
    return Listener(host=host, port=port)


def _refused(listener: Listener, error: OSError) -> ConfigError:
    kind = InUseError if error.errno == errno.EADDRINUSE else ConfigError
    return kind(f"cannot listen on {listener}: {error.strerror or error}")
