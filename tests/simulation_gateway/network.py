"""A network in memory: connections that take time, stall, break and are refused, under asyncio's own API.

Every connection has two ends with asyncio protocols. Bytes arrive in order, after a delay.
"""

import asyncio
import errno
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from random import Random
from typing import Any, Final, Protocol, runtime_checkable

from tests.simulation_gateway.loop import CURRENT, Process, VirtualLoop

HIGH: Final = 64 << 10
LOW: Final = 16 << 10
EARLIER_MS: Final = 2
BUSY_MS: Final = 100
"""How much time may pass between two steps of one task on a busy machine."""
Address = tuple[str, int]
Accept = Callable[[], asyncio.Protocol]


@runtime_checkable
class Watching(Protocol):
    """A protocol that is told at once when its peer aborts the connection."""

    def peer_aborts(self) -> None:
        """The peer calls `abort`."""


class Socket:
    """The value that the gateway reads from a socket: how many bytes the peer's system has acknowledged
    (`struct tcp_info`).
    """

    def __init__(self, end: "End") -> None:
        self._end: Final = end

    def getsockopt(self, *_: object) -> bytes:
        return struct.pack("=120xQ72xQQ", 1 + self._end.acknowledged, self._end.sent, 0).ljust(256, b"\0")

    def getsockname(self) -> Address:
        return self._end.name


class End(asyncio.Transport):
    """One end of a connection. `acknowledged`: bytes that have arrived at the peer's system. `began_ms`:
    when the latest request of this end began: with the lookup of the name, with the connection, or with what
    this end last wrote.
    """

    def __init__(self, network: "Network", name: Address, context: Context) -> None:
        super().__init__({"peername": ("192.0.2.250", 1), "sockname": name, "socket": Socket(self)})
        self.name: Final = name
        self.network: Final = network
        self.context: Final = context
        self.process: Final[Process | None] = context.get(CURRENT)
        self.protocol: asyncio.BaseProtocol
        self.peer: End
        self.sent = self.acknowledged = self.began_ms = self._answered = 0
        self._arriving: Final[deque[bytes | None]] = deque()
        """Bytes that have arrived and are not read; None: the peer sends no more."""
        self._in_transit: Final[deque[Callable[[], object]]] = deque()
        self._unread = 0
        self._arrival_ms = 0
        self._paused = False
        self._writer_paused = False
        self._closing = False
        self._lost = False

    # -- asyncio.Transport

    def write(self, data: Any) -> int | None:  # type: ignore[override]  # it returns when the bytes arrive
        if self._closing or self._lost or (self.process is not None and self.process.dead):
            return None
        piece = bytes(data)
        peer = self.peer
        if peer.sent > self._answered:  # else it is another piece of the same request
            self.began_ms, self._answered = self.network.loop.now_ms, peer.sent
        self.sent += len(piece)
        peer._unread += len(piece)
        self._to_peer(lambda: peer._arrive(piece))
        if peer._unread > HIGH and not self._writer_paused and not self._lost:
            self._writer_paused = True
            self._soon(self.protocol.pause_writing)
        return peer._arrival_ms

    def write_eof(self) -> None:
        peer = self.peer
        self._to_peer(lambda: peer._arrive(None))

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        if not self._closing and not self._lost:
            self._closing = True
            peer = self.peer
            self._to_peer(lambda: peer._arrive(None))
            self._soon(self._lose, None)

    def abort(self) -> None:
        if not self._lost:
            peer = self.peer
            if not self._closing and isinstance(peer.protocol, Watching):
                peer.protocol.peer_aborts()
            self._closing = True
            self._to_peer(peer._reset)
            self._soon(self._lose, None)

    def is_closing(self) -> bool:
        return self._closing or self._lost

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._soon(self._read)

    def get_write_buffer_size(self) -> int:
        return self.peer._unread

    # -- what happens

    def _soon(self, call: Callable[..., object], *args: Any) -> None:
        self.network.loop.call_soon(call, *args, context=self.context)

    def _to_peer(self, call: Callable[[], object]) -> None:
        """Deliver sent bytes later, in order, even if the process of this end is killed in the meantime."""
        loop, peer = self.network.loop, self.peer
        peer._arrival_ms = max(peer._arrival_ms, loop.now_ms + self.network.delay_ms())
        peer._in_transit.append(call)
        loop.call_at(peer._arrival_ms / 1000, peer._next_arrives, context=peer.context)

    def _next_arrives(self) -> None:
        # Timers of one instant are in no order: the queue is.
        self._in_transit.popleft()()

    def _arrive(self, piece: bytes | None) -> None:
        if self._lost or self._closing or (self.process is not None and self.process.dead):
            return
        self.peer.acknowledged += len(piece or b"")
        self._arriving.append(piece)
        self._read()

    def _read(self) -> None:
        while self._arriving and not self._paused and not self._lost:
            piece = self._arriving.popleft()
            if piece is None:
                if not self.protocol.eof_received():  # type: ignore[attr-defined]  # of a Protocol
                    self.close()
                continue
            self._unread -= len(piece)
            writer = self.peer
            if writer._writer_paused and self._unread < LOW:
                writer._writer_paused = False
                if not writer._lost:
                    writer._soon(writer.protocol.resume_writing)
            self.protocol.data_received(piece)  # type: ignore[attr-defined]  # the same

    def _reset(self) -> None:
        if not self._lost:
            self._lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._closing = self._lost = True
        self.network.open.pop(self, None)
        if self.process is None or not self.process.dead:
            self.protocol.connection_lost(error)

    def cut(self) -> None:
        """The process of this end is killed: the peer's system is notified, this end is not."""
        peer = self.peer
        self._lost = self._closing = True
        self.network.open.pop(self, None)
        self._to_peer(peer._reset)


class Listening:
    """The result of `create_server`."""

    def __init__(self, network: "Network", address: Address, accept: Accept) -> None:
        self.network: Final = network
        self.address: Final = address
        self.accept: Final = accept
        self.context: Final = copy_context()
        self.sockets: Final = [self]

    def getsockname(self) -> Address:
        return self.address

    def close(self) -> None:
        if self.network.listening.get(self.address) is self:
            del self.network.listening[self.address]


class Network:
    """The simulated network.

    `refused`, `unanswered`: addresses that refuse, or do not answer, connections. `descriptors_left`: False:
    this machine has no descriptor for a connection. `late_ms`: how long addresses take to accept a
    connection, or up to `EARLIER_MS` less. `names`: the answers of the resolver; `silent`: names whose
    servers do not answer, with the time until the resolver reports an error.
    """

    def __init__(self, loop: VirtualLoop, random: Random) -> None:
        self.loop: Final = loop
        self.random: Final = random
        self.listening: Final[dict[Address, Listening]] = {}
        self.open: Final[dict[End, None]] = {}
        self.refused: Final[set[str]] = set()
        self.unanswered: Final[set[str]] = set()
        self.late_ms: Final[dict[str, int]] = {}
        self.names: Final[dict[str, Sequence[str]]] = {}
        self.silent: Final[dict[str, float]] = {}
        self.descriptors_left = True
        self.slow = False
        self._looked_up: Final[dict[str, tuple[int, int]]] = {}
        """When the latest lookup that found an address began and ended."""
        # The loop of a simulation
        loop.create_connection = self.connect  # type: ignore[method-assign,assignment]
        loop.create_server = self.listen  # type: ignore[method-assign,assignment]  # the same

    def delay_ms(self) -> int:
        return self.random.choice((1, 5, 50, 300)) if self.slow else self.random.choice((0, 0, 1, 1, 2))

    async def resolve(self, host: str, _port: int) -> Sequence[str]:
        """The system's resolver."""
        if host[0].isdigit():
            return [host]
        began_ms = self.loop.now_ms
        if host in self.silent:
            await asyncio.sleep(self.silent[host])
            if host in self.silent:
                raise OSError(-3, "Temporary failure in name resolution")
        await asyncio.sleep(self.delay_ms() / 1000)
        if host not in self.names:
            raise OSError(-2, "Name or service not known")
        for address in self.names[host]:
            self._looked_up[address] = began_ms, self.loop.now_ms
        return self.names[host]

    async def listen(self, accept: Accept, host: str, port: int, **_: Any) -> Listening:
        listening = self.listening[host, port] = Listening(self, (host, port), accept)
        return listening

    async def connect(
        self, factory: Accept, host: str, port: int, **_: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Replaces `create_connection`."""
        if not self.descriptors_left and CURRENT.get() is not None:
            raise OSError(errno.EMFILE, "Too many open files")
        lookup_ms, ended_ms = self._looked_up.get(host, (0, 0))
        since_ms = self.loop.now_ms - ended_ms
        began_ms = lookup_ms if since_ms <= (0 if self.loop.busy is None else BUSY_MS) else self.loop.now_ms
        late_ms = self.late_ms.get(host)
        wait_ms = self.delay_ms() if late_ms is None else late_ms - self.random.randint(0, EARLIER_MS)
        await asyncio.sleep(wait_ms / 1000)
        if host in self.unanswered:
            await asyncio.sleep(3600)
        listening = self.listening.get((host, port))
        if host in self.refused or listening is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed ({host!r}, {port})")
        here, there = (
            End(self, ("192.0.2.250", 1), copy_context()),
            End(self, (host, port), listening.context),
        )
        here.peer, there.peer = there, here
        here.began_ms = began_ms
        here.protocol = factory()
        there.protocol = listening.context.copy().run(listening.accept)
        self.open[here] = self.open[there] = None
        there._soon(there.protocol.connection_made, there)
        here.protocol.connection_made(here)
        return here, here.protocol

    def cut_all(self, process: Process) -> None:
        """A process is killed: end its listeners and connections."""
        for end in [each for each in self.open if each.process is process]:
            end.cut()
        for listening in list(self.listening.values()):
            if listening.context.get(CURRENT) is process:
                listening.close()
