"""Listening sockets, and the accept loop of all listeners of the server.

Law: neither unauthenticated clients nor a lack of descriptors stop the accept loop or make it spin. The
servers of asyncio are not used: they log without limit when descriptors run out, keep one TLS context, and
cannot count a connection before its handshake.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from amqp_streams.errors import ConfigError
from amqp_streams.server.limits.logins import peer_network
from service_parts import binding
from service_parts.errors import raised_as
from service_parts.networks import Crowds, format_address
from service_parts.settings.listeners import Listener as Address

# How many connections are accepted in one loop iteration: a flood of new clients must not starve connected
# ones. Accepting one takes about 0.2 ms, so four take about as long as other kinds of work in an iteration.
ACCEPTS_A_TURN: Final = 4
# How long accepting pauses when the system has no free descriptors or memory.
BACK_OFF_S: Final = 1.0
# Log lines that unauthenticated clients cause (refused connections, failed handshakes): at most one of each
# kind in this time, with the number of lines that were left out.
QUIET_S: Final = 10.0
# How long a client may take to answer a TLS close_notify.
TLS_SHUTDOWN_S: Final = 5.0

log = structlog.get_logger("amqp_streams.server")


@dataclass(frozen=True, slots=True)
class BoundAddress:
    """The address on which a listener listens.

    If the configured port is 0, this is the port that the system chose; a host name is resolved to an
    address.
    """

    host: str
    port: int
    tls: bool

    def __str__(self) -> str:
        return format_address(self.host, self.port)


class Admission:
    """Counts connections and limits them: one limit for all listeners of the node, including WebSocket.

    A connection is unauthenticated until its AMQP `open`. At the limit, a new connection replaces an
    unauthenticated one: the oldest of the network with the most. Otherwise a client without a login could
    block all others.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.refused = 0
        """How many connections were refused, or closed while unauthenticated to make room for a new one."""
        self._members: set[object] = set()
        self._unauthenticated: Crowds[object] = Crowds()
        self._send_away: dict[object, Callable[[], None]] = {}
        """How to close each of them."""
        self._line = Seldom("connection_refused")

    @property
    def count(self) -> int:
        """How many connections are counted."""
        return len(self._members)

    def enter(self, member: object, *, peer: str, send_away: Callable[[], None] | None = None) -> bool:
        """Count `member`.

        Returns False at the limit (counted in `refused` and logged). With `send_away`, the member is
        unauthenticated until `opened`, and `send_away` closes it.
        """
        network = peer_network(peer)
        if len(self._members) >= self.limit:
            self.refused += 1
            if not self._make_room(network):
                self._line.warning(peer=peer, limit=self.limit)
                return False
        self._members.add(member)
        if send_away is not None:
            self._unauthenticated.add(member, network)
            self._send_away[member] = send_away
        return True

    def opened(self, member: object) -> None:
        """Note that `member` has sent its AMQP open and is no longer unauthenticated."""
        self._unauthenticated.remove(member)
        self._send_away.pop(member, None)

    def leave(self, member: object) -> None:
        """Stop counting `member`. Ignored if it is not counted."""
        self._members.discard(member)
        self.opened(member)

    def _make_room(self, network: str) -> bool:
        """Close an unauthenticated connection to make room for one from `network`.

        Returns False if all connections have logged in.
        """
        # Of equal networks it is this one: closing one of another would leave this one with the most.
        busiest = self._unauthenticated.largest(network)
        if busiest is None:
            return False
        oldest = self._unauthenticated.oldest(busiest)
        send_away = self._send_away[oldest]
        self.leave(oldest)
        self._line.warning(peer=busiest, limit=self.limit)
        send_away()
        return True


class Seldom:
    """A log line that unauthenticated clients can cause. It is written at most once in QUIET_S."""

    def __init__(self, event: str) -> None:
        self._event: Final = event
        self._next_at = float("-inf")
        self._left_out = 0

    def warning(self, **values: object) -> None:
        """Write the line now, or count it as left out."""
        now = asyncio.get_running_loop().time()
        if now < self._next_at:
            self._left_out += 1
            return
        log.warning(self._event, **values, left_out=self._left_out)
        self._next_at, self._left_out = now + QUIET_S, 0


async def bind(listener: Address) -> list[socket.socket]:
    """Return listening sockets for every address of `listener.host`; a name may have several.

    Raises:
        ConfigError: the name is unknown, or no address of it can be bound. The cause is the OSError.
    """
    with raised_as(ConfigError):
        return await binding.bind(listener)


class Acceptor:
    """Accepts connections on one bound socket and creates a protocol for each, with TLS if `tls` is given.

    `tls` returns the current context.

    `enter` counts a new protocol and returns whether it is admitted. `leave` undoes this for a protocol whose
    connection was not established.
    """

    def __init__(
        self,
        sock: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        *,
        enter: Callable[[asyncio.BaseProtocol, str], bool],
        leave: Callable[[asyncio.BaseProtocol], None],
        tls: Callable[[], ssl.SSLContext] | None,
        handshake_s: float,
    ) -> None:
        host, port = sock.getsockname()[:2]
        self.address: Final = BoundAddress(host, port, tls is not None)
        self.opening: Final[dict[asyncio.BaseProtocol, asyncio.Task[None]]] = {}
        self._sock: Final = sock
        self._make: Final = make
        self._enter: Final = enter
        self._leave: Final = leave
        self._tls: Final = tls
        self._handshake_s: Final = handshake_s
        self._loop: Final = asyncio.get_running_loop()
        self._back_off: asyncio.TimerHandle | None = None
        self._stopped = False
        self._shortage = Seldom("accept_paused")
        self._failed = Seldom("handshake_failed")
        self._loop.add_reader(sock, self._accept)

    def stop(self) -> None:
        """Stop accepting, and cancel running handshakes.

        Established connections stay. May be called twice.
        """
        if self._stopped:
            return
        self._stopped = True
        if self._back_off:
            self._back_off.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()
        # Without TLS a connection opens within one loop iteration, and some of these already have: those
        # stay.
        if self._tls is not None:
            for task in self.opening.values():
                task.cancel()

    def give_up(self, protocol: asyncio.BaseProtocol) -> None:
        """Cancel the handshake of this protocol, if one is running. Without TLS it does nothing."""
        task = self.opening.get(protocol)
        if task is not None and self._tls is not None:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_A_TURN):
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                # No client waits any more, or it has left. The loop calls again when one comes.
                return
            except OSError as error:
                self._pause(error)
                return
            self._admit(sock, format_address(*address[:2]))

    def _pause(self, error: OSError) -> None:
        # Without descriptors, the socket stays readable. The loop would spin if the reader were not removed.
        self._shortage.warning(
            listener=str(self.address), reason=error.strerror or str(error), seconds=BACK_OFF_S
        )
        self._loop.remove_reader(self._sock)
        self._back_off = self._loop.call_later(BACK_OFF_S, self._resume)

    def _resume(self) -> None:
        self._back_off = None
        self._loop.add_reader(self._sock, self._accept)

    def _admit(self, sock: socket.socket, peer: str) -> None:
        protocol = self._make()
        # Counted before the handshake: handshakes cost work, so they are limited as well.
        if not self._enter(protocol, peer):
            sock.close()
            return
        task = self._loop.create_task(self._open(sock, protocol))
        self.opening[protocol] = task
        task.add_done_callback(partial(self._opened, sock, protocol, peer))

    async def _open(self, sock: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        sock.setblocking(False)
        # Each flush is a complete answer: waiting for more bytes would only delay it.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Finds clients that disappeared before their AMQP `open`, when no idle timeout is agreed yet.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._tls is None:
            await self._loop.connect_accepted_socket(lambda: protocol, sock)
        else:
            await self._loop.connect_accepted_socket(
                lambda: protocol,
                sock,
                ssl=self._tls(),
                ssl_handshake_timeout=self._handshake_s,
                ssl_shutdown_timeout=TLS_SHUTDOWN_S,
            )

    def _opened(
        self, sock: socket.socket, protocol: asyncio.BaseProtocol, peer: str, task: asyncio.Task[None]
    ) -> None:
        # Here and not in _open: a task cancelled before its first step never enters it.
        del self.opening[protocol]
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            return
        self._leave(protocol)
        sock.close()  # harmless if the transport has closed it
        if isinstance(error, OSError):  # includes ssl.SSLError and the timeout of the handshake
            self._failed.warning(peer=peer, listener=str(self.address), reason=_reason(error))
        elif not isinstance(error, asyncio.CancelledError):
            log.error("connection_not_opened", peer=peer, exc_info=error)


def _reason(error: OSError) -> str:
    """Return why a handshake failed. Never empty: a client that closes its connection leaves no text."""
    if isinstance(error, ConnectionError) and not str(error):
        return (
            "the peer closed the connection: perhaps it does not trust the certificate, or does not use TLS"
        )
    return str(error) or error.strerror or type(error).__name__
