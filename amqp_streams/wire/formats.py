"""The message-formats of received transfers, read from the bytes of a connection. Pure. Spec: AMQP 2.7.5.

Proton reads transfers and drops this field. Formats other than 0 are rare. So a regular expression searches
each received block for transfers that may have one, and only a block with such a transfer is read frame by
frame.

Law: the content of a message is never mistaken for a transfer, and a transfer is found in every encoding. A
format that cannot be read is `UNKNOWN`, never 0.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from amqp_streams.errors import WireError
from amqp_streams.wire.decoder import decode
from amqp_streams.wire.frames import HEADER_SIZE
from amqp_streams.wire.types import UInt, Value

UNKNOWN: Final = -1
PROTOCOL_HEADER_BYTES: Final = 8
"""The bytes before the first frame of a connection."""
Plainness = Callable[[memoryview | bytes, int, int], int]
"""Not 0 if no frame of a block needs a look at its fields: see `FormatFinder.plain`. `ONLY_TRANSFERS` if in
addition all its complete frames are transfers. The first frame begins at the first number; an incomplete
frame begins at the second one.
"""
ONLY_TRANSFERS: Final = 2
Endpoint = tuple[int, int]
"""The peer's channel and handle of a link."""

_WALKED_MAX: Final = 32
"""A block of at most this many frames is read frame by frame: its frames are large, and a search of all bytes
takes longer. Batches are such frames.
"""
_TRANSFER_FRONT_BYTES: Final = 11
"""The bytes in which a frame shows that it is a transfer."""
_FRONT_BYTES_MAX: Final = 2048
"""The bytes that are kept of an incomplete frame: its header (at most 1020 bytes), and the performative up to
the last field that is read.
"""
_UINT: Final = rb"(?>\x43|\x52.|\x70....)"
_ID: Final = rb"(?>\x43|\x52.|\x70....|\x40)"
_TAG: Final = rb"(?>" + b"|".join(re.escape(bytes((size,))) + b"." * size for size in range(33)) + rb")"
# Every byte of a connection is searched, so the expression begins with a literal byte, for which `re` has a
# fast search. Then it excludes the usual transfer, whose format is 0, before it looks at the bytes in front.
_SEEN: Final = re.compile(
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
_SHORT: Final = 0x53
"""The constructor of a descriptor of one byte."""
_TRANSFER_FRAME: Final = re.compile(rb".{4}\x02\x00..\x00\x53\x14", re.DOTALL)
_LISTS: Final = {0xC0: (2, 1), 0xD0: (8, 4)}
"""By constructor of a list: the bytes between it and the first item, and how many of them are the count."""


class FormatFinder:
    """Finds the transfers of one connection whose message-format is not 0.

    `waiting`: for each link, the formats that `take` has not returned yet, by delivery tag. The key None is
    for a delivery whose tag was not read. `plain`: it is certain that no frame that begins in the last block
    is an attach, unless it begins less than 12 bytes before the end. `transfers`: it is certain that all
    frames that end in the last block are transfers. `plainness` is a faster search than the regular
    expression.
    """

    __slots__ = (
        "_attached",
        "_begin",
        "_block",
        "_current",
        "_end",
        "_front",
        "_joined",
        "_left",
        "_plainness",
        "plain",
        "transfers",
        "waiting",
    )

    def __init__(self, plainness: Plainness | None = None) -> None:
        self._plainness: Final = plainness
        self.plain = False
        self.transfers = False
        self._left = -PROTOCOL_HEADER_BYTES
        self._front = b""
        self._joined = b""
        self._block: memoryview | bytes = b""
        self._begin = self._end = 0
        self._attached: dict[str, deque[Endpoint]] | None = None
        self._current: dict[Endpoint, bytes] = {}
        """By link: the tag of the last delivery that was read and not taken. A later transfer of the same
        delivery may omit the tag (AMQP 2.7.5).
        """
        self.waiting: Final[dict[Endpoint, dict[bytes | None, int]]] = {}

    def feed(self, block: memoryview | bytes, left: int) -> None:
        """Search received bytes.

        `left`: how many bytes at the end belong to an incomplete frame; negative while the protocol header is
        incomplete.

        `find_link` reads the block until `release` or `hold` is called, so the block must not change.
        """
        before, self._left, self._attached = self._left, left, None
        # The frame's front is kept for the block that completes it.
        if left == before + len(block):  # no frame was completed
            self._block, self._begin, self._end = b"", 0, 0
            self.transfers = before >= 0
            self.plain = _TRANSFER_FRAME.match(self._front) is not None
            if left > 0 and len(self._front) < _FRONT_BYTES_MAX:
                at = max(0, -before)
                self._front += bytes(block[at : at + _FRONT_BYTES_MAX - len(self._front)])
            return
        end = len(block) - left
        self._block, self._end = block, end
        self._joined = b""
        # The block begins inside a frame: the front of this frame was kept.
        if before > 0:
            # A frame whose front is complete needs no more bytes: all that is read stands in the front.
            more = 0 if before > len(self._front) else min(end, _FRONT_BYTES_MAX)
            self._joined = self._front + bytes(block[:more])
            self._begin = int.from_bytes(self._joined[:4]) - before
        else:
            self._begin = -before
        plainness = 0 if self._plainness is None else self._plainness(block, self._begin, end)
        self.plain = plainness > 0
        self.transfers = plainness == ONLY_TRANSFERS and (
            not self._joined or _opened(self._joined)[1].startswith(_TRANSFER)
        )
        walked = None if self.plain else self._few_frames()
        if walked is not None:
            transfers = [each for each in walked if each[1].startswith(_TRANSFER)]
            if any(_SEEN.match(body, 2 if body[1] == _SHORT else 9) for _, body in transfers):
                for channel, body in transfers:
                    self._note(channel, body)
            self.transfers = len(transfers) == len(walked)
            self.plain = self.transfers and (
                left < _TRANSFER_FRONT_BYTES or _TRANSFER_FRAME.match(block, end) is not None
            )
        # Most other blocks end here: no transfer with another format, no step of Python for each frame.
        elif (not self.plain and _SEEN.search(block, self._begin, end) is not None) or (
            self._joined and _SEEN.search(self._joined) is not None
        ):
            for channel, body in self._frames():
                if body.startswith(_TRANSFER):
                    self._note(channel, body)
        self._front = bytes(block[end : end + _FRONT_BYTES_MAX]) if left else b""

    @property
    def busy(self) -> bool:
        """Whether `take` must be called for deliveries. If not, all their formats are 0."""
        return bool(self.waiting or self._current)

    def awaits(self, link: Endpoint | None, number: int) -> bool:
        """Whether a delivery of this link that was not taken has the format `number`."""
        entries = None if link is None else self.waiting.get(link)
        return entries is not None and number in entries.values()

    def hold(self) -> None:
        """Copy the block of the last `feed`: call it before the block's memory is reused."""
        self._block = bytes(self._block)

    def release(self) -> None:
        """Drop the block of the last `feed`. `find_link` finds nothing until the next one."""
        self._block, self._joined, self._attached, self._end = b"", b"", None, 0

    def prune(self) -> None:
        """Forget the formats of deliveries that were taken, and keep those of incomplete deliveries.

        This bounds the memory of a link: at most two entries remain.
        """
        for link, entries in list(self.waiting.items()):
            tag = self._current.get(link)
            self._keep(link, {each: entries[each] for each in (tag, None) if each in entries})

    def find_link(self, name: str) -> Endpoint | None:
        """Return the next sender that attached under this name in the last block; None if no sender is left.

        Each attach is returned once, in the order of the attaches.
        """
        if self._attached is None:
            self._attached = {}
            # Only when a link attaches: the attaches of a block are read once.
            for channel, body in self._frames():
                if body.startswith(_ATTACH) and (found := _attach(body)) is not None:
                    self._attached.setdefault(found[0], deque()).append((channel, found[1]))
        named = self._attached.get(name)
        return named.popleft() if named else None

    def take(self, link: Endpoint | None, tags: Sequence[bytes], unfinished: bytes | None) -> list[int]:
        """Return and forgets the formats of complete deliveries, in the order of `tags`. Empty: all are 0.

        `tags` are all complete deliveries of the link. `unfinished`: the tag of its incomplete delivery.
        """
        if link is None:  # the attach could not be read, so the tag may be any link's
            known = {tag for entries in self.waiting.values() for tag in entries}
            return [UNKNOWN if tag in known else 0 for tag in tags] if known else []
        # The delivery that the tag belonged to is complete or aborted.
        if unfinished is None or self._current.get(link) != unfinished:
            self._current.pop(link, None)
        entries = self.waiting.get(link)
        if entries is None:
            return []
        found = [entries.pop(tag, 0) for tag in tags]
        # A format without a tag belongs to the oldest delivery. If that one has a format of its own, the two
        # contradict each other.
        if found and None in entries:
            found[0] = entries.pop(None) if not found[0] else UNKNOWN
        self._keep(
            link,
            {tag: entries[tag] for tag in (unfinished, None) if tag in entries and unfinished is not None},
        )
        return found

    def pop(self, link: Endpoint | None, tags: Sequence[bytes]) -> list[int]:
        """Like `take`, for a caller that takes only some of the complete deliveries of a link."""
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

    def take_first(self, link: Endpoint | None, tag: bytes) -> int:
        """Like `take`, for a caller that takes only the first complete delivery of a link, whose tag this
        is.
        """
        if link is None:
            return UNKNOWN if any(tag in entries for entries in self.waiting.values()) else 0
        if self._current.get(link) == tag:
            del self._current[link]
        entries = self.waiting.get(link)
        if entries is None:
            return 0
        found = entries.pop(tag, 0)
        if None in entries:
            found = UNKNOWN if found else entries.pop(None)
        self._keep(link, entries)
        return found

    def forget(self, link: Endpoint | None) -> None:
        """Forget all formats of a link that has ended."""
        if link is not None:
            self.waiting.pop(link, None)
            self._current.pop(link, None)

    def _keep(self, link: Endpoint, entries: dict[bytes | None, int]) -> None:
        if entries:
            self.waiting[link] = entries
        else:
            self.waiting.pop(link, None)

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        """Yield the channel and the beginning of the body of each complete frame."""
        at, block, end = self._begin, self._block, self._end
        if self._joined:
            yield _opened(self._joined[: int.from_bytes(self._joined[:4])])
        # A size that is too small would never advance.
        while HEADER_SIZE <= (size := int.from_bytes(block[at : at + 4])) <= end - at:
            yield _opened(bytes(block[at : at + min(size, _FRONT_BYTES_MAX)]))
            at += size

    def _few_frames(self) -> list[tuple[int, bytes]] | None:
        """Return what `_frames` yields; None if they are many, or if a frame is not valid."""
        at, block, end = self._begin, self._block, self._end
        found = [_opened(self._joined[: int.from_bytes(self._joined[:4])])] if self._joined else []
        while at < end:
            size = int.from_bytes(block[at : at + 4])
            if not HEADER_SIZE <= size <= end - at or len(found) == _WALKED_MAX:
                return None
            found.append(_opened(bytes(block[at : at + min(size, _FRONT_BYTES_MAX)])))
            at += size
        return found

    def _note(self, channel: int, body: bytes) -> None:
        """Record the tag and the format of a transfer."""
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
        if tag is None:  # as a rule, a later transfer of a delivery
            tag = self._current.get(link)
        else:
            self._current[link] = tag
        if number:
            entries = self.waiting.setdefault(link, {})
            # Transfers of one delivery must not contradict each other (AMQP 2.7.5).
            entries[tag] = number if entries.get(tag, number) == number else UNKNOWN


def _opened(frame: bytes) -> tuple[int, bytes]:
    """Return the channel of a frame, and its body."""
    if len(frame) < HEADER_SIZE:
        return 0, b""
    return int.from_bytes(frame[6:8]), frame[4 * frame[4] :]


def _transfer(body: bytes) -> tuple[int, bytes | None, int]:
    """Return handle, delivery tag and message-format of a transfer.

    Handle and tag are those that Proton reads, also from a malformed transfer: the caller looks formats up by
    Proton's tags.
    """
    fields = _fields(body, 4)
    handle, tag = (fields[index] if index < len(fields) else None for index in (0, 2))
    number = fields[3] if len(fields) > 3 else None
    # `_fields` returns one item more if a field is malformed: then None does not mean absent.
    known = int(number) if isinstance(number, UInt) else 0 if number is None and len(fields) < 5 else UNKNOWN
    return int(handle) if isinstance(handle, UInt) else 0, tag if isinstance(tag, bytes) else None, known


def _attach(body: bytes) -> tuple[str, int] | None:
    """Return the name and the handle of a sender's attach; None for a receiver's or a malformed one."""
    fields = _fields(body, 3)
    if len(fields) < 3 or not isinstance(fields[0], str) or fields[2] is True:
        return None
    return str(fields[0]), int(fields[1]) if isinstance(fields[1], UInt) else 0


def _fields(body: bytes, count: int) -> list[Value]:
    """Return the first `count` fields of a performative.

    Malformed fields are None, and then the list has `count + 1` items.
    """
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
