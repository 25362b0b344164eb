"""[io] Listening sockets for an address."""

import asyncio
import errno
import socket
from typing import Final

from service_parts.errors import SettingError
from service_parts.networks import format_address
from service_parts.settings.listeners import Listener

BACKLOG: Final = 1024
_NO_SUCH_ADDRESS: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


async def bind(listener: Listener) -> list[socket.socket]:
    """Return listening sockets for every address of `listener.host`; a name may have several.

    IPv6 sockets accept IPv6 only, so that 0.0.0.0 and :: can both be bound to one port.

    Raises:
        SettingError: the name is unknown, or no address of it can be bound. The cause is the OSError.
    """
    host = listener.host.removeprefix("[").removesuffix("]")
    where = format_address(host, listener.port)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        message = f"cannot listen on {where}: {error.strerror or error}"
        raise SettingError(message) from error
    bound: list[socket.socket] = []
    missing: OSError | None = None
    for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
        try:
            bound.append(_bound_socket(family, address))
        except OSError as error:
            if error.errno in _NO_SUCH_ADDRESS:
                missing = error  # for example a name's IPv6 address on a machine without IPv6
                continue
            close_all(bound)
            message = f"cannot listen on {where}: {error.strerror or error}"
            raise SettingError(message) from error
    if not bound:
        message = f"cannot listen on {where}: {missing.strerror if missing else 'the name has no address'}"
        raise SettingError(message) from missing
    return bound


def close_all(sockets: list[socket.socket]) -> None:
    """Close all these sockets."""
    for sock in sockets:
        sock.close()


def tcp_socket(family: int) -> socket.socket:
    """Return a socket to bind. An IPv6 socket accepts IPv6 only."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    # A restart must be able to bind while old connections are in TIME_WAIT.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return sock


def _bound_socket(family: int, address: object) -> socket.socket:
    sock = tcp_socket(family)
    try:
        sock.bind(address)  # type: ignore[arg-type]  # getaddrinfo's address fits the family it came with
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock
