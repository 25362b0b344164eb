"""A TCP connection in memory: the node's end is an asyncio transport, the client's end is a `Peer`.

Bytes take time, arrive in pieces, wait in small buffers, and may be delayed, lost with the connection, or
vanish while one side considers the connection open.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from amqp_streams.server.listening.listener import Channel
from tests.simulation.machine.schedule import MS, Schedule


class Peer(Protocol):
    """The client's end."""

    def input(self, data: bytes) -> None:
        """Bytes have arrived."""

    def lost(self) -> None:
        """The connection has ended."""


@dataclass
class Weather:
    """How a network behaves. `block_bytes`: at most so many in one piece."""

    random: Random
    delay_us: int = 1 * MS
    buffer_bytes: int = 64 << 10
    block_bytes: int = 256 << 10

    def latency_us(self) -> int:
        """Of the next piece."""
        return 50 + int(self.random.random() * self.delay_us)

    def block(self, waiting: int) -> int:
        """Return the maximum size of the next piece. If many bytes wait, pieces are larger."""
        most = max(self.block_bytes, waiting // 8)
        return most if self.random.random() < 0.8 else int(self.random.random() * most) + 1


class _Way:
    """One direction: bytes leave in order, and arrive in order."""

    def __init__(self, schedule: Schedule, weather: Weather, arrive: Callable[[bytes], None]) -> None:
        self.waiting = bytearray()
        """Not taken by the system."""
        self.in_flight = 0
        self.held_until_us = 0
        self.open = True
        self.lossy = False
        """All sent bytes vanish."""
        self.left: Callable[[], None] = lambda: None
        """Bytes have left `waiting`."""
        self._schedule = schedule
        self._weather = weather
        self._arrive = arrive
        self._last_us = 0

    def send(self, data: bytes) -> None:
        self.waiting += data
        self.move()

    def move(self) -> None:
        """Send as many bytes as the buffers of the systems can hold."""
        moved = False
        while self.waiting and self.open and self.in_flight < self._weather.buffer_bytes:
            size = min(self._weather.block(len(self.waiting)), self._weather.buffer_bytes - self.in_flight)
            block = bytes(self.waiting[:size])
            del self.waiting[: len(block)]
            self.in_flight += len(block)
            moved = True
            if self.lossy:
                continue
            at = max(self._last_us, self.held_until_us, self._schedule.now_us + self._weather.latency_us())
            self._last_us = at
            self._schedule.at(at, lambda block=block: self._come(block))  # type: ignore[misc]
        if moved:
            self.left()

    def hold(self, us: int) -> None:
        """Nothing that is sent from now on arrives for a while."""
        self.held_until_us = max(self.held_until_us, self._schedule.now_us + us)

    def taken(self, count: int) -> None:
        """The receiver has read so many bytes."""
        self.in_flight -= count
        self.move()

    def _come(self, block: bytes) -> None:
        if self.open and not self.lossy:
            self._arrive(block)


class Wire(asyncio.Transport):
    """One connection; this object is the node's transport."""

    def __init__(
        self,
        schedule: Schedule,
        loop: Any,
        weather: Weather,
        peer: Peer,
        channel: Channel,
        *,
        address: tuple[str, int],
    ) -> None:
        super().__init__({"peername": address})
        self.peer = peer
        self.channel = channel
        self.down = _Way(schedule, weather, self._to_client)
        self.up = _Way(schedule, weather, self._to_node)
        self.down.left = self._room
        self.client_reads = True
        self.troubled = False
        """Bytes of the client were late."""
        self._unread = bytearray()
        """At the client, while it does not read."""
        self._inbox = bytearray()
        self._schedule = schedule
        self._loop = loop
        self._paused = False
        self._closing = False
        self._eof = False
        self._gone = False
        self._high, self._low, self._above = 64 << 10, 16 << 10, False
        self._reading_armed = False
        loop.call_soon(self._made)

    # -- the node's end

    def get_write_buffer_size(self) -> int:
        return len(self.down.waiting)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high, self._low = high or 0, low or 0

    @property
    def paused(self) -> bool:
        """The node does not read."""
        return self._paused or self._gone

    def is_closing(self) -> bool:
        return self._closing

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: Any) -> None:
        if self._gone or self._closing or self._eof:
            return
        self.down.send(bytes(data))
        self._above = self._above or len(self.down.waiting) > self._high

    def write_eof(self) -> None:
        self._eof = True
        self._schedule.after(0, self._end_when_sent)

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._read_soon()

    def close(self) -> None:
        self._closing = True
        self._schedule.after(0, self._end_when_sent)

    def abort(self) -> None:
        self._closing = True
        self._end()

    def _made(self) -> None:
        if not self._gone:
            self.channel.connection_made(self)
            self._read_soon()

    def _room(self) -> None:
        if self._above and len(self.down.waiting) <= self._low and not self._gone:
            self._above = False
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        if not self._gone:
            self.channel.resume_writing()

    def _end_when_sent(self) -> None:
        """The node has closed its side: when all has left, the client reads the end, and closes, too."""
        if self._gone:
            return
        if self.down.waiting or self.down.in_flight:
            self._schedule.after(5 * MS, self._end_when_sent)
        else:
            self._end()

    def _read_soon(self) -> None:
        if self._inbox and not self._paused and not self._reading_armed and not self._gone:
            self._reading_armed = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._reading_armed = False
        if self._gone or self._paused or not self._inbox:
            return
        buffer = self.channel.get_buffer(-1)
        size = min(len(buffer), len(self._inbox))
        buffer[:size] = self._inbox[:size]
        del self._inbox[:size]
        self.up.taken(size)
        self.channel.buffer_updated(size)
        self._read_soon()

    def _to_node(self, block: bytes) -> None:
        if not self._gone:
            self._inbox += block
            self._read_soon()

    # -- the client's end

    def send(self, data: bytes) -> None:
        """The client writes."""
        if not self._gone:
            self.up.send(data)

    @property
    def unsent(self) -> int:
        """The bytes that the client has written and the node has not read."""
        return len(self.up.waiting) + self.up.in_flight

    def read_again(self) -> None:
        """The client, which did not read, does."""
        self.client_reads = True
        unread, self._unread = bytes(self._unread), bytearray()
        if unread:
            self.down.taken(len(unread))
            self.peer.input(unread)

    def _to_client(self, block: bytes) -> None:
        if not self.client_reads:
            self._unread += block
            return
        self.down.taken(len(block))
        self.peer.input(block)

    # -- ends

    def reset(self) -> None:
        """Break the connection, and notify both sides."""
        self._end()

    def vanish(self) -> None:
        """The client disappears, and the node does not learn it: everything that it sends is lost."""
        self.down.lossy = self.up.lossy = self.troubled = True
        self.peer.lost()

    def crash(self, *, told: bool) -> None:
        """The process of the node ends. `told`: its machine resets the connection."""
        self._gone = True
        self._close_ways()
        if told:
            self._schedule.after(100, self.peer.lost)

    def _end(self) -> None:
        if self._gone:
            return
        self._gone = True
        self._close_ways()
        self._loop.call_soon(lambda: self.channel.connection_lost(None))
        self._schedule.after(100, self.peer.lost)

    def _close_ways(self) -> None:
        self.up.open = self.down.open = False
