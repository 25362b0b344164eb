"""A sender and a subscriber in one process, as cheap as they can be: what is measured is the gateway between
them.

Events carry a number in `ce-id`; when it was sent and when it arrived are on one clock, so every latency is
known.
"""

import asyncio
import re
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

_ID: Final = re.compile(rb"\r\nce-id: *n(\d+)\r", re.IGNORECASE)
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)\r", re.IGNORECASE)
_ACCEPTED_FIRST: Final = b"HTTP/1.1 202"
_ACCEPTED: Final = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"


@dataclass
class Record:
    """What is known of each event, by number.

    Times: seconds of one clock, 0 where it did not happen. `again`: arrived once more.
    """

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


class Arrivals(Protocol):
    """What is told of an event that arrives."""

    def note_arrival(self, number: int) -> None:
        """One came."""


class Subscriber(asyncio.Protocol):
    """One connection of the gateway to us."""

    def __init__(self, record: Arrivals) -> None:
        self._record: Final = record
        self._kept = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember it."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every whole request."""
        if not self._kept and (number := _alone(data)) is not None:
            self._record.note_arrival(number)
            self._transport.write(_ACCEPTED)
            return
        data = self._kept + data
        while (end := data.find(b"\r\n\r\n")) >= 0:
            head = data[: end + 2]
            length = _LENGTH.search(head)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(data) < whole:
                break
            found = _ID.search(head)
            assert found is not None, head
            self._record.note_arrival(int(found[1]))
            self._transport.write(_ACCEPTED)
            data = data[whole:]
        self._kept = data


def _alone(data: bytes) -> int | None:
    """The number of an event, if this is one whole request as our gateway or one in Go writes it; found
    without searching.
    """
    end = data.find(b"\r\n\r\n")
    at, name = data.rfind(b"Content-Length: ", 0, end), data.find(b"ce-id: n", 0, end)
    if name < 0:
        name = data.find(b"Ce-Id: n", 0, end)
    if min(end, at, name) < 0 or len(data) != end + 4 + int(data[at + 16 : data.index(b"\r", at)]):
        return None
    return int(data[name + 8 : data.index(b"\r", name)])


class Silent(asyncio.Protocol):
    """One that takes connections and never answers."""


class Sender(asyncio.Protocol):
    """One connection of ours to the gateway: an event at a time."""

    def __init__(self, record: Record) -> None:
        self._record: Final = record
        self._transport: Any = None
        self._told: Callable[[Sender], None] | None = None
        self._kept = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember it."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """An answer, with or without a body."""
        if not self._kept and data.startswith(_ACCEPTED_FIRST) and data.endswith(b"\r\n\r\n"):
            self._tell(accepted=True)
            return
        self._kept += data
        end = self._kept.find(b"\r\n\r\n")
        if end < 0:
            return
        length = _LENGTH.search(self._kept[: end + 2])
        whole = end + 4 + (int(length[1]) if length else 0)
        if len(self._kept) < whole:
            return
        accepted = self._kept.startswith(_ACCEPTED_FIRST)
        self._kept = self._kept[whole:]
        self._tell(accepted=accepted)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002  # asyncio's signature
        """Nobody answers any more."""
        self._tell(accepted=False)

    def send(
        self, number: int, request: bytes, told: Callable[["Sender"], None], *, since: float | None = None
    ) -> None:
        """One event; `told` is called when it was answered.

        `since`: when it should have been sent, if that was earlier.
        """
        self._told = told
        self._record.sent[number] = time.perf_counter() if since is None else since
        self._transport.write(request)

    def _tell(self, *, accepted: bool) -> None:
        told, self._told = self._told, None
        if told is not None:
            self._record.refused += not accepted
            told(self)


def requests(path: str, types: Sequence[str], body: bytes) -> Callable[[int], bytes]:
    """The events by their numbers, of each type in turn, in binary mode."""
    front = f"POST {path} HTTP/1.1\r\nhost: bench\r\nce-specversion: 1.0\r\nce-source: /bench\r\n".encode()
    ends = [
        b"\r\nce-type: %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (type_.encode(), len(body), body)
        for type_ in types
    ]
    return lambda number: b"%bce-id: n%d%b" % (front, number, ends[number % len(ends)])


async def flood(url: str, record: Record, types: Sequence[str], body: bytes, *, connections: int) -> None:
    """Send all events, as fast as their answers come."""
    made, numbers = requests(urlsplit(url).path, types, body), iter(range(record.count))
    senders = await connected(url, record, connections)
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = len(senders)

    def go_on(sender: Sender) -> None:
        nonlocal left
        number = next(numbers, None)
        if number is not None:
            sender.send(number, made(number), go_on)
            return
        left -= 1
        if not left:
            ended.set_result(None)

    for sender in senders:
        go_on(sender)
    await ended


async def pace(
    url: str, record: Record, types: Sequence[str], body: bytes, *, per_second: float, connections: int = 16
) -> None:
    """Send them at a rate, whatever the answers: a late one counts from when it should have been sent."""
    made, began = requests(urlsplit(url).path, types, body), time.perf_counter()
    free: asyncio.Queue[Sender] = asyncio.Queue()
    senders = await connected(url, record, connections)
    for sender in senders:
        free.put_nowait(sender)
    for number in range(record.count):
        due = began + number / per_second
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        (await free.get()).send(number, made(number), free.put_nowait, since=due)
    for _ in senders:
        await free.get()


async def connected(url: str, record: Record, connections: int) -> list[Sender]:
    """That many connections."""
    parts = urlsplit(url)
    host, port = parts.hostname, parts.port
    assert host is not None
    assert port is not None
    loop = asyncio.get_running_loop()
    made = await asyncio.gather(
        *(loop.create_connection(lambda: Sender(record), host, port) for _ in range(connections))
    )
    return [sender for _, sender in made]
