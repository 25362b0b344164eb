"""Transfers whose message-format is not 0, found in the bytes of a connection (AMQP 1.0 section 2.7.5). Pure.

Proton reads transfers and drops this field. A search in C looks for the rare transfers that have one: it costs nothing for each message.

Law: what is found counts only for a delivery with the same tag that begins with the same bytes, so that a message whose content looks
like a transfer is not taken for one.
"""

import re
from dataclasses import dataclass
from typing import Final

from amqp_streams.wire.frames import HEADER_SIZE

_FRONT_BYTES_MAX: Final = 96
"""From the header of a frame to behind the message-format of its transfer, at most."""
_START_BYTES_MAX: Final = 64
"""Compared with the beginning of a delivery."""
_SAME_TAG_MAX: Final = 8
_WAITING_MAX: Final = 1024
"""Tags that are kept from one block to the next: of deliveries that are not complete."""

_UINT: Final = rb"(?>\x43|\x52.|\x70.{4})"
_TAG: Final = b"|".join(re.escape(bytes((size,))) + b".{%d}" % size for size in range(33))
_TRANSFER: Final = re.compile(
    rb"\x00\x53\x14(?=(?P<list>(?>\xc0..|\xd0.{8}))(?P<handle>" + _UINT + rb")(?P<id>" + _UINT + rb")"
    rb"(?>\xa0|\xb0\x00{3})(?P<tag>(?>" + _TAG + rb"))(?P<format>\x52[^\x00]|\x70(?!\x00{4}).{4}))",
    re.DOTALL,
)


@dataclass(slots=True, eq=False)
class _Found:
    """A transfer. `delivery` names it on its connection: channel, handle, delivery-id.

    `start`: how its payload begins; it is known when the bytes from `known` to `until` of the stream have come.
    """

    delivery: bytes
    format: int
    start: bytes
    known: int
    until: int

    def grow(self, block: memoryview | bytes, base: int) -> None:
        """Bytes of the stream from `base` on."""
        more = bytes(block[self.known - base : max(0, self.until - base)])
        self.start += more
        self.known += len(more)


class FormatFinder:
    """The transfers of one connection that begin a delivery and have a message-format. `waiting`: by delivery tag."""

    __slots__ = ("_growing", "_seen", "_tail", "waiting")

    def __init__(self) -> None:
        self._seen = 0
        self._tail = b""
        self._growing: list[_Found] = []
        self.waiting: Final[dict[bytes, list[_Found]]] = {}

    def feed(self, block: memoryview | bytes) -> None:
        """Look at the bytes that came."""
        tail, seen = self._tail, self._seen
        if tail:
            self._look(tail + bytes(block[:_FRONT_BYTES_MAX]), seen - len(tail), boundary=len(tail))
        if self._growing:
            for found in self._growing:
                found.grow(block, seen)
            self._growing = [found for found in self._growing if found.known < found.until]
        self._look(block, seen)
        self._seen += len(block)
        self._tail = bytes(block[-_FRONT_BYTES_MAX:]) if len(block) >= _FRONT_BYTES_MAX else (tail + block)[-_FRONT_BYTES_MAX:]

    def _look(self, block: memoryview | bytes, base: int, *, boundary: int | None = None) -> None:
        """Search a block, or with a `boundary` the seam of two for what lies across it. `base`: its place in the stream."""
        for match in _TRANSFER.finditer(block):
            begin = match.start() - HEADER_SIZE
            if begin < 0 or (boundary is not None and not begin < boundary < match.end("format")):
                continue
            header = bytes(block[begin : begin + HEADER_SIZE])
            if header[4:6] != b"\x02\x00":
                continue
            content = match["list"]
            at = match.end() + (2 + content[1] if content[0] == 0xC0 else 5 + int.from_bytes(content[1:5]))
            until = max(at, min(begin + int.from_bytes(header[:4]), at + _START_BYTES_MAX))
            number, delivery = int.from_bytes(match["format"][1:]), header[6:] + match["handle"] + match["id"]
            found = _Found(delivery, number, b"", base + at, base + until)
            found.grow(block, base)
            self._wait(match["tag"][1:], found)

    def _wait(self, tag: bytes, found: _Found) -> None:
        same = self.waiting.setdefault(tag, [])
        if all(found.delivery != other.delivery for other in same):  # a later transfer of a delivery may say it again
            same.append(found)
            del same[:-_SAME_TAG_MAX]
            if found.known < found.until:
                self._growing = [*self._growing[-_SAME_TAG_MAX:], found]

    def take(self, tag: bytes, message: bytes) -> int:
        """The message-format of a delivery that is complete."""
        same = self.waiting.get(tag, [])
        for found in same:
            if found.known == found.until and message.startswith(found.start):
                same.remove(found)
                if not same:
                    del self.waiting[tag]
                return found.format
        return 0

    def prune(self) -> None:
        """The deliveries that are complete were taken: bound what is left."""
        while len(self.waiting) > _WAITING_MAX:
            del self.waiting[next(iter(self.waiting))]
