"""The node, its loop, its clock and the channels to its peers, all in memory."""

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from amqp_streams import names
from amqp_streams.config import Limits, LogSettings, NodeSettings
from amqp_streams.server.connection import AmqpConnection
from amqp_streams.server.identity.guard import Guard, KeyStore, Login, PasswordCheck
from amqp_streams.server.listening.channel import DRAINED_WHEN_ABOVE
from amqp_streams.server.service import EventService
from amqp_streams.storage.ports import CommitDone, StoredLog
from amqp_streams.streams.management import Request
from amqp_streams.testing import ManualClock, MemoryStore
from amqp_streams.wire.layout import DATA_BINARY8

if TYPE_CHECKING:
    import asyncio

BLOCK_BYTES: Final = 256 << 10
TURNS_MAX: Final = 100_000
"""Rounds of `run` after which something is going in circles."""


class ManualLoop:
    """Stands in for an event loop: calls wait for `run_ready`, timers for `advance`.

    An exception is the caller's.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._ready: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, _Timer]] = []
        self._order = count()

    def time(self) -> float:
        """Seconds, moved by `InMemoryNode.advance`."""
        return self.now_s

    def call_soon(self, call: Callable[..., object], *arguments: object) -> None:
        """Call in the next `run_ready`. From any thread."""
        self._ready.append(partial(call, *arguments))

    call_soon_threadsafe = call_soon

    def call_later(self, delay_s: float, call: Callable[..., object], *arguments: object) -> "_Timer":
        """Call once `advance` has moved the time far enough."""
        timer = _Timer(partial(call, *arguments))
        # The order of creation decides between timers of one moment, as in a real loop.
        heappush(self._timers, (self.now_s + delay_s, next(self._order), timer))
        return timer

    def run_ready(self) -> bool:
        """Make the calls that wait now, not those that they bring; whether there was any."""
        # Counted first: calls that these calls add belong to the next round.
        waiting = len(self._ready)
        for _ in range(waiting):
            self._ready.popleft()()
        return waiting > 0

    def next_timer_s(self) -> float | None:
        """When the next timer is due."""
        return self._timers[0][0] if self._timers else None

    def fire(self) -> None:
        """Make the call of the next timer, whose time has come."""
        self.now_s, _, timer = heappop(self._timers)
        # Cancelled timers stay in the heap: removing them from its middle would be slow.
        if not timer.cancelled:
            timer.call()


@dataclass(slots=True)
class _Timer:
    call: Callable[[], object]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class _Inline(Executor):
    """Does at once what an executor would do on a thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  a future carries whatever was raised
            future.set_exception(error)
        return future


class _Service(EventService):
    """The service by the test's clock."""

    def __init__(self, node: "InMemoryNode") -> None:
        self._clock = node.clock
        super().__init__(node.settings, node.store, cast("asyncio.AbstractEventLoop", node.loop))

    def now_ms(self) -> int:
        return self._clock()

    def monotonic_ms(self) -> int:
        return self._clock()


class Peer(Protocol):
    """The other end of a channel."""

    def output(self) -> bytes:
        """What it sends now."""

    def input(self, data: bytes) -> None:
        """What it gets."""

    def closed(self) -> None:
        """Process the loss of the channel."""


class MemoryChannel:
    """A byte stream to a peer (`server.listening.channel.ByteChannel`).

    With `stuck` the peer takes nothing.
    """

    secure = False
    foreign = False
    protocol = "amqp"

    def __init__(self, peer: str, *, loopback: bool = True) -> None:
        self.peer: Final = peer
        self.loopback: Final = loopback
        self.certificate: dict[str, Any] | None = None
        self.reading = True
        self.closing = False
        self.stuck = False
        self.inbox = bytearray()
        self.outbox = bytearray()

    def write(self, data: bytes) -> None:
        """See `ByteChannel`."""
        if not self.closing:
            self.outbox += data

    def pending(self) -> int:
        """See `ByteChannel`."""
        return len(self.outbox)

    def pause_reading(self) -> None:
        """See `ByteChannel`."""
        self.reading = False

    def resume_reading(self) -> None:
        """See `ByteChannel`."""
        self.reading = True

    def close(self) -> None:
        """See `ByteChannel`."""
        self.closing = True

    def abort(self) -> None:
        """See `ByteChannel`."""
        self.outbox.clear()
        self.closing = True


@dataclass(slots=True, eq=False)
class _Wire:
    peer: Peer
    channel: MemoryChannel
    connection: AmqpConnection
    block_bytes: int
    gone: bool = False

    def exchange(self) -> bool:
        """Carry what there is, both ways; whether there was anything."""
        channel = self.channel
        if self.gone:
            return False
        channel.inbox += self.peer.output()
        moved = False
        while channel.reading and channel.inbox and not channel.closing:
            block = bytes(channel.inbox[: self.block_bytes])
            # In blocks, so that tests reach the code for incomplete frames.
            del channel.inbox[: self.block_bytes]
            self.connection.received(memoryview(block))
            moved = True
        if channel.outbox and not channel.stuck:
            data = bytes(channel.outbox)
            channel.outbox.clear()
            self.peer.input(data)
            # As the real channel: below this, nothing waits for its output.
            if len(data) > DRAINED_WHEN_ABOVE:
                self.connection.drained()
            moved = True
        # What was written before the close still reaches the peer.
        if channel.closing and (channel.stuck or not channel.outbox):
            self.lose()
            return True
        return moved

    def lose(self) -> None:
        if not self.gone:
            # First: the callbacks below may come here again.
            self.gone = True
            self.connection.lost()
            self.peer.closed()


class InMemoryNode:
    """An event log node over a `MemoryStore`, a clock that the test moves, and any number of peers.

    `logs` names logs and their partition counts. Bytes reach a connection in blocks of at most `block_bytes`.
    """

    def __init__(
        self,
        logs: Mapping[str, int] | None = None,
        *,
        store: MemoryStore | None = None,
        limits: Limits | None = None,
        block_bytes: int = BLOCK_BYTES,
        **settings: Any,
    ) -> None:
        self.clock = ManualClock()
        self.loop = ManualLoop()
        self.store = store or MemoryStore()
        # Writes end in a later round, as on a real disk: code that relies on more fails.
        if isinstance(self.store, MemoryStore):
            self.store.states.defer = self.loop.call_soon
        self.settings = NodeSettings(data_dir=Path("unused"), limits=limits or Limits(), **settings)
        self.service: EventService = _Service(self)
        self.block_bytes: Final = block_bytes
        self._wires: list[_Wire] = []
        self._guards: dict[int, Guard] = {}
        for name, partitions in (logs or {}).items():
            self.create(name, partitions=partitions)
        self.service.start()

    def create(self, name: str, **settings: Any) -> StoredLog:
        """Make a log."""
        return self.service.node.create(name, LogSettings(**settings))

    def delete(self, name: str) -> None:
        """Delete a log as `$management` does; its links are closed."""
        self.service.node.manage(Request("DELETE", names.LOG_TYPE, name, {}, None, None))
        self.service.effects.carry_out()

    def connect(
        self,
        peer: Peer,
        *,
        users: PasswordCheck | None = None,
        loopback: bool = True,
        login: Login | None = None,
        certificate: dict[str, Any] | None = None,
    ) -> MemoryChannel:
        """A new connection with this peer; with a `login` it is past the security layer already.

        `certificate`: as ssl tells it.
        """
        channel = MemoryChannel(f"127.0.0.1:{40_000 + len(self._wires)}", loopback=loopback)
        channel.certificate = certificate
        keys = cast("KeyStore | None", users if hasattr(users, "keys") else None)
        # One guard for each set of users: it counts failed logins over all connections.
        guard = self._guards.get(id(users))
        if guard is None:
            guard = self._guards[id(users)] = Guard(
                self.settings, self.service, executor=_Inline(), passwords=users, keys=keys
            )
        connection = AmqpConnection(self.service, channel, guard)
        if login is not None:
            connection._admitted(login, b"")
        self._wires.append(_Wire(peer, channel, connection, self.block_bytes))
        return channel

    def run(self) -> None:
        """Run until neither the node nor a peer has anything to send or to do. The clock does not advance."""
        for _ in range(TURNS_MAX):
            if not self.turn() and not self.awaited():
                return
        message = "the node and its peers go in circles"
        raise AssertionError(message)

    def awaited(self) -> bool:
        """Wait for a store that answers from elsewhere. Returns whether there was something to wait for."""
        return False

    def turn(self) -> bool:
        """Run one iteration of the event loop. Returns whether anything happened."""
        moved = [wire.exchange() for wire in self._wires]
        # Both: calls of the loop may write, and bytes may schedule calls.
        return bool(self.loop.run_ready()) or any(moved)

    def advance(self, ms: int) -> None:
        """Let time pass, timers and ticks included."""
        end = self.clock.now_ms + ms
        # The two clocks have different beginnings.
        base = self.clock.now_ms - round(self.loop.now_s * 1000)
        while (due := self.loop.next_timer_s()) is not None and base + round(due * 1000) <= end:
            self.clock.now_ms = base + round(due * 1000)
            self.loop.fire()
            self.run()
        self.clock.now_ms = end
        self.loop.now_s = (end - base) / 1000
        self.run()

    def disconnect(self, peer: Peer) -> None:
        """The peer's channel breaks, now."""
        for wire in self._wires:
            if wire.peer is peer:
                wire.lose()

    def append(self, log: str, *bodies: bytes, partition: int = 0) -> None:
        """Events that are simply there, and wake who waits for them.

        The store has to complete its commits by itself.
        """
        assert self.store.auto, "a commit that the test completes is for events that came over a link"
        messages = [DATA_BINARY8 + bytes((len(body),)) + body for body in bodies]
        owner = self.store.logs[log].partitions[partition]
        owner.append(messages, bytes(len(messages)), self.clock())
        self.store.commit()
        for consumer in self.service.node.committed(CommitDone(owner.queue, 0, 0, 0, 0.0, {}), [owner]):
            link = self.service.effects.consumer(consumer)
            assert link is not None
            self.service.pump_later(link)
