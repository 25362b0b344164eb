"""The message-formats of the transfers that come in (AMQP 1.0 section 2.7.5), found in the bytes of a
connection. Pure.

Proton reads transfers and drops this field. A search in C looks for transfers that may have another format
than 0: they are rare, so that it costs next to nothing for each message. Only a block in which one may be is
read frame by frame.

Law: the content of a message is never taken for a transfer, and a transfer is found in every encoding. A
format that cannot be read is `UNKNOWN`, never 0.
"""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from amqp_streams.errors import WireError
from amqp_streams.wire.decoder import decode
from amqp_streams.wire.frames import HEADER_SIZE
from amqp_streams.wire.types import UInt, Value

UNKNOWN: Final = -1
PROTOCOL_HEADER_BYTES: Final = 8
"""Come before the first frame of a connection."""
Endpoint = tuple[int, int]
"""A link as its peer names it: channel and handle."""

_FRONT_BYTES_MAX: Final = 2048
"""Kept of a frame that is not complete: its header (at most 1020 bytes), and its performative up to what is
looked at.
"""
_UINT: Final = rb"(?>\x43|\x52.|\x70....)"
_ID: Final = rb"(?>\x43|\x52.|\x70....|\x40)"
_TAG: Final = rb"(?>" + b"|".join(re.escape(bytes((size,))) + b"." * size for size in range(33)) + rb")"
_SEEN: Final = re.compile(  # one byte is searched for, and what is usual is passed over first
    rb"\x14(?!\xc0.."
    + _UINT
    + _ID
    + rb"\xa0"
    + _TAG
    + rb"[\x43\x40])(?>(?<=\x00\x53\x14)|(?<=\x00\x80\x00{7}\x14))",
    re.DOTALL,
)
_USUAL: Final = re.compile(
    rb"\x00\x53\x14\xc0.[^\x00-\x03](?P<handle>"
    + _UINT
    + rb")"
    + _ID
    + rb"\xa0(?P<tag>"
    + _TAG
    + rb")(?P<format>"
    + _ID
    + rb")",
    re.DOTALL,
)
_TRANSFER: Final = (b"\x00\x53\x14", b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x14")
_ATTACH: Final = (b"\x00\x53\x12", b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x12")
_LISTS: Final = {0xC0: (2, 1), 0xD0: (8, 4)}
"""Of a list's constructor: bytes from behind it to the first item, and of the count among them."""


class FormatFinder:
    """The transfers of one connection with another message-format than 0.

    `waiting`: by link, the formats of deliveries by their tags; of a delivery whose tag was not seen under
    None.
    """

    __slots__ = ("_attached", "_begin", "_block", "_current", "_end", "_front", "_joined", "_left", "waiting")

    def __init__(self) -> None:
        self._left = -PROTOCOL_HEADER_BYTES
        self._front = b""
        self._joined = b""
        self._block: memoryview | bytes = b""
        self._begin = self._end = 0
        self._attached: dict[str, deque[Endpoint]] | None = None
        self._current: dict[Endpoint, bytes] = {}
        """The tag of the last delivery that began on a link, where it was looked at and is not taken."""
        self.waiting: Final[dict[Endpoint, dict[bytes | None, int]]] = {}

    def feed(self, block: memoryview | bytes, left: int) -> None:
        """The bytes that came. `left`: how many of the last ones are of a frame that is not complete.

        It is negative while less than the protocol header has come. `find_link` looks into the block, until
        `release`.
        """
        before, self._left, self._attached = self._left, left, None
        if left == before + len(block):  # no frame was completed
            self._block, self._begin, self._end = b"", 0, 0
            if left > 0 and len(self._front) < _FRONT_BYTES_MAX:
                at = max(0, -before)
                self._front += bytes(block[at : at + _FRONT_BYTES_MAX - len(self._front)])
            return
        end = len(block) - left
        self._block, self._end = block, end
        self._joined = b""
        if before > 0:
            more = 0 if before > len(self._front) else min(end, _FRONT_BYTES_MAX)
            self._joined = self._front + bytes(block[:more])
            self._begin = int.from_bytes(self._joined[:4]) - before
        else:
            self._begin = -before
        if _SEEN.search(block, self._begin, end) is not None or (
            self._joined and _SEEN.search(self._joined) is not None
        ):
            for channel, body in self._frames():
                if body.startswith(_TRANSFER):
                    self._note(channel, body)
        self._front = bytes(block[end : end + _FRONT_BYTES_MAX]) if left else b""

    @property
    def busy(self) -> bool:
        """Whether `take` has to be asked about what has arrived."""
        return bool(self.waiting or self._current)

    def hold(self) -> None:
        """Copy the block that was fed: its memory is about to be reused."""
        self._block = bytes(self._block)

    def release(self) -> None:
        """Drop the block that was fed: the caller does not need it any more."""
        self._block, self._joined, self._attached, self._end = b"", b"", None, 0

    def prune(self) -> None:
        """Forget the formats of deliveries that were taken, and keep those of incomplete deliveries.

        This bounds the memory of a link: at most two entries remain.
        """
        for link, entries in list(self.waiting.items()):
            tag = self._current.get(link)
            self._keep(link, {each: entries[each] for each in (tag, None) if each in entries})

    def find_link(self, name: str) -> Endpoint | None:
        """The sender that attached in the last block under this name, the first that was not asked for yet;

        None: unknown.
        """
        if self._attached is None:
            self._attached = {}
            for channel, body in self._frames():
                if body.startswith(_ATTACH) and (found := _attach(body)) is not None:
                    self._attached.setdefault(found[0], deque()).append((channel, found[1]))
        named = self._attached.get(name)
        return named.popleft() if named else None

    def take(self, link: Endpoint | None, tags: Sequence[bytes], unfinished: bytes | None) -> list[int]:
        """The formats of deliveries that are complete, in their order; none: all are 0.

        `unfinished`: the tag of the one that is not.
        """
        if link is None:  # an attach that could not be read
            known = {tag for entries in self.waiting.values() for tag in entries}
            return [UNKNOWN if tag in known else 0 for tag in tags] if known else []
        if unfinished is None or self._current.get(link) != unfinished:
            self._current.pop(link, None)
        entries = self.waiting.get(link)
        if entries is None:
            return []
        found = [entries.pop(tag, 0) for tag in tags]
        if found and None in entries:
            found[0] = entries.pop(None) if not found[0] else UNKNOWN
        self._keep(
            link,
            {tag: entries[tag] for tag in (unfinished, None) if tag in entries and unfinished is not None},
        )
        return found

    def pop(self, link: Endpoint | None, tags: Sequence[bytes]) -> list[int]:
        """`take` for those that take some of what is complete."""
        entries = None if link is None else self.waiting.get(link)
        if link is None or entries is None:
            return []
        if self._current.get(link) in tags:
            del self._current[link]
        found = [entries.pop(tag, 0) for tag in tags]
        if found and not found[0]:
            found[0] = entries.pop(None, 0)
        self._keep(link, entries)
        return found

    def forget(self, link: Endpoint | None) -> None:
        """A link is gone."""
        if link is not None:
            self.waiting.pop(link, None)
            self._current.pop(link, None)

    def _keep(self, link: Endpoint, entries: dict[bytes | None, int]) -> None:
        if entries:
            self.waiting[link] = entries
        else:
            self.waiting.pop(link, None)

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        """Of each frame that is complete the channel, and the beginning of its body."""
        at, block, end = self._begin, self._block, self._end
        if self._joined:
            yield _opened(self._joined[: int.from_bytes(self._joined[:4])])
        while HEADER_SIZE <= (size := int.from_bytes(block[at : at + 4])) <= end - at:
            yield _opened(bytes(block[at : at + min(size, _FRONT_BYTES_MAX)]))
            at += size

    def _note(self, channel: int, body: bytes) -> None:
        """A transfer."""
        usual = _USUAL.match(body)
        if usual is not None:
            handle, tag, number = (
                int.from_bytes(usual["handle"][1:]),
                usual["tag"][1:],
                int.from_bytes(usual["format"][1:]),
            )
        else:
            handle, tag, number = _transfer(body)
        link = (channel, handle)
        if tag is None:  # mostly a later transfer of a delivery
            tag = self._current.get(link)
        else:
            self._current[link] = tag
        if number:
            entries = self.waiting.setdefault(link, {})
            entries[tag] = number if entries.get(tag, number) == number else UNKNOWN


def _opened(frame: bytes) -> tuple[int, bytes]:
    """The channel of a frame, and its body."""
    if len(frame) < HEADER_SIZE:
        return 0, b""
    return int.from_bytes(frame[6:8]), frame[4 * frame[4] :]


def _transfer(body: bytes) -> tuple[int, bytes | None, int]:
    """Handle, delivery tag and message-format of a transfer, as Proton understands the first two."""
    fields = _fields(body, 4)
    handle, tag = (fields[place] if place < len(fields) else None for place in (0, 2))
    number = fields[3] if len(fields) > 3 else None
    known = int(number) if isinstance(number, UInt) else 0 if number is None and len(fields) < 5 else UNKNOWN
    return int(handle) if isinstance(handle, UInt) else 0, tag if isinstance(tag, bytes) else None, known


def _attach(body: bytes) -> tuple[str, int] | None:
    """Name and handle of a sender's attach."""
    fields = _fields(body, 3)
    if len(fields) < 3 or not isinstance(fields[0], str) or fields[2] is True:
        return None
    return str(fields[0]), int(fields[1]) if isinstance(fields[1], UInt) else 0


def _fields(body: bytes, count: int) -> list[Value]:
    """The first fields of a performative; one more that is None where they cannot be read."""
    at = 3 if body[1] == 0x53 else 10
    fields: list[Value] = []
    try:
        if body[at] not in _LISTS:
            return fields
        front, width = _LISTS[body[at]]
        listed = int.from_bytes(body[at + 1 + front - width : at + 1 + front])
        at += 1 + front
        for _ in range(min(count, listed)):
            value, at = decode(body, at)
            fields.append(value)
    except (WireError, IndexError):
        return [*fields, *[None] * (count + 1 - len(fields))]
    return fields
