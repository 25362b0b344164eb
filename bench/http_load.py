"""A sender and a subscriber in one process, as cheap as they can be: what is measured is the gateway between them.

Events carry a number in `ce-id`; when it was sent and when it arrived are on one clock, so every latency is known.
"""

import asyncio
import re
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

_ID: Final = re.compile(rb"\r\nce-id: *n(\d+)\r", re.IGNORECASE)
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)\r", re.IGNORECASE)
_ACCEPTED: Final = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"


@dataclass
class Record:
    """What is known of each event, by number. Times: seconds of one clock, 0 where it did not happen. `again`: arrived once more."""

    count: int
    sent: "array[float]" = field(init=False)
    arrived: "array[float]" = field(init=False)
    left: int = field(init=False)
    again: int = 0
    refused: int = 0
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.sent = array("d", bytes(8 * self.count))
        self.arrived = array("d", bytes(8 * self.count))
        self.left = self.count

    def note_arrival(self, number: int) -> None:
        """One came."""
        if self.arrived[number]:
            self.again += 1
            return
        self.arrived[number] = time.perf_counter()
        self.left -= 1
        if not self.left:
            self.complete.set()

    def latencies_ms(self, skip: int = 0) -> list[float]:
        """Of those that arrived, sorted; the first `skip` left out."""
        pairs = zip(self.sent[skip:], self.arrived[skip:], strict=True)
        return sorted((arrived - sent) * 1000 for sent, arrived in pairs if arrived)

    @property
    def seconds(self) -> float:
        """From the first that was sent to the last that arrived."""
        return max(self.arrived) - min(at for at in self.sent if at)


class Subscriber(asyncio.Protocol):
    """One connection of the gateway to us."""

    def __init__(self, record: Record) -> None:
        self._record: Final = record
        self._kept = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember it."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every whole request."""
        data = self._kept + data
        while (end := data.find(b"\r\n\r\n")) >= 0:
            head = data[: end + 2]
            length = _LENGTH.search(head)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(data) < whole:
                break
            number = _ID.search(head)
            assert number is not None, head
            self._record.note_arrival(int(number[1]))
            self._transport.write(_ACCEPTED)
            data = data[whole:]
        self._kept = data


class Silent(asyncio.Protocol):
    """One that takes connections and never answers."""


class Sender(asyncio.Protocol):
    """One connection of ours to the gateway: an event at a time."""

    def __init__(self, record: Record) -> None:
        self._record: Final = record
        self._transport: Any = None
        self._answered: asyncio.Future[bool] | None = None
        self._kept = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember it."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """An answer, with or without a body."""
        self._kept += data
        end = self._kept.find(b"\r\n\r\n")
        if end < 0:
            return
        length = _LENGTH.search(self._kept[: end + 2])
        whole = end + 4 + (int(length[1]) if length else 0)
        if len(self._kept) < whole:
            return
        accepted = self._kept.startswith(b"HTTP/1.1 202")
        self._kept = self._kept[whole:]
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(accepted)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002  # asyncio's signature
        """Nobody answers any more."""
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(False)

    async def send(self, number: int, request: bytes, *, since: float | None = None) -> None:
        """One event; returns when it was answered. `since`: when it should have been sent, if that was earlier."""
        self._answered = asyncio.get_running_loop().create_future()
        self._record.sent[number] = time.perf_counter() if since is None else since
        self._transport.write(request)
        if not await self._answered:
            self._record.refused += 1


def request(path: str, number: int, type_: str, body: bytes) -> bytes:
    """One event in binary mode."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\nce-specversion: 1.0\r\nce-id: n{number}\r\nce-source: /bench\r\nce-type: {type_}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def flood(url: str, record: Record, types: Sequence[str], body: bytes, *, connections: int) -> None:
    """Send all events, as fast as their answers come."""
    path = urlsplit(url).path
    numbers = iter(range(record.count))

    async def one(sender: Sender) -> None:
        for number in numbers:
            await sender.send(number, request(path, number, types[number % len(types)], body))

    await asyncio.gather(*(one(sender) for sender in await connected(url, record, connections)))


async def pace(url: str, record: Record, types: Sequence[str], body: bytes, *, per_second: float, connections: int = 16) -> None:
    """Send them at a rate, whatever the answers: a late one counts from when it should have been sent."""
    path, began = urlsplit(url).path, time.perf_counter()
    free: asyncio.Queue[Sender] = asyncio.Queue()
    for sender in await connected(url, record, connections):
        free.put_nowait(sender)

    async def one(number: int, due: float) -> None:
        sender = await free.get()
        await sender.send(number, request(path, number, types[number % len(types)], body), since=due)
        free.put_nowait(sender)

    tasks = []
    for number in range(record.count):
        due = began + number / per_second
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(number, time.perf_counter())))
    await asyncio.gather(*tasks)


async def connected(url: str, record: Record, connections: int) -> list[Sender]:
    """That many connections."""
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    made = await asyncio.gather(*(loop.create_connection(lambda: Sender(record), parts.hostname, parts.port) for _ in range(connections)))
    return [sender for _, sender in made]
