"""The delivery annotations of each delivered record: partition, timestamp, offset (Event Streams 4.6.4, 5.1).

    00 53 71                                        delivery annotations
    c1 <size> 06                                    a map of three pairs
    a3 1e event-streams-source-partition  a3 <n> <partition>
    a3 16 event-streams-timestamp         83 <8 bytes: ms since the epoch>
    a3 14 event-streams-offset            a3 10 <13 digits> <3 digits>

The offset is last: the sections of up to a thousand adjacent records with the same timestamp differ only in
their last three bytes, so that writing one joins two existing byte strings.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from amqp_streams.names import OFFSET, SOURCE_PARTITION, TIMESTAMP
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.layout import DELIVERY_ANNOTATIONS_HEAD
from amqp_streams.wire.offsets import OFFSET_DIGITS, OFFSET_MAX
from amqp_streams.wire.types import Symbol

# Records whose offsets share all digits but the last three.
_BLOCK: Final = 1000
_LOW: Final = tuple(b"%03d" % low for low in range(_BLOCK))
_PAIRS: Final = 3
_TIMESTAMP_MAX: Final = (1 << 63) - 1


def section(annotations: Mapping[str, object]) -> bytes:
    """Encode a delivery annotations section.

    Keys become symbols, and values that are None are left out. Returns no bytes if no entry is left.

    Raises:
        WireError: a value has no AMQP type.
        ValueError: a key is not ASCII.
    """
    entries = {Symbol(key): value for key, value in annotations.items() if value is not None}
    return DELIVERY_ANNOTATIONS_HEAD + encode(entries) if entries else b""


class AnnotationWriter:
    """Writes the delivery annotations of one partition's records.

    `extra`: further annotations, the same on each record. A section is `before_timestamp`, the 8 bytes of the
    timestamp, `after_timestamp`, and the digits of the offset: `size` bytes.
    """

    __slots__ = ("after_timestamp", "before_timestamp", "size")

    def __init__(self, partition: str, extra: Mapping[str, object] | None = None) -> None:
        entries = {Symbol(key): value for key, value in (extra or {}).items() if value is not None}
        # The order of the entries is chosen: what all records share comes first, what changes comes last.
        before = (
            encode(Symbol(SOURCE_PARTITION)) + encode(Symbol(partition)) + encode(Symbol(TIMESTAMP)) + b"\x83"
        )
        self.after_timestamp: Final = encode(Symbol(OFFSET)) + bytes((0xA3, OFFSET_DIGITS))
        pairs = b"".join([encode(part) for pair in entries.items() for part in pair]) + before
        count = 2 * (len(entries) + _PAIRS)
        # Offset and timestamp have a fixed size, so the size of the map is known before their values are.
        size = len(pairs) + 8 + len(self.after_timestamp) + OFFSET_DIGITS
        small = size + 1 < 256 and count < 256
        # A map has a short form for content of less than 256 bytes. A partition with a long name needs the
        # long one.
        head = bytes((0xC1, size + 1, count)) if small else struct.pack(">BII", 0xD1, size + 4, count)
        self.before_timestamp: Final = DELIVERY_ANNOTATIONS_HEAD + head + pairs
        self.size: Final = len(self.before_timestamp) + 8 + len(self.after_timestamp) + OFFSET_DIGITS

    def run(self, first: int, timestamp_ms: int, count: int) -> list[bytes]:
        """Return the sections of `count` records from number `first`, all with the time `timestamp_ms`."""
        assert 0 <= first <= first + count <= OFFSET_MAX + 1, (first, count)
        assert 0 <= timestamp_ms <= _TIMESTAMP_MAX, timestamp_ms
        head = self.before_timestamp + timestamp_ms.to_bytes(8) + self.after_timestamp
        block, low = divmod(first, _BLOCK)
        # The usual case: all offsets share one prefix, so a record costs one concatenation.
        if low + count <= _BLOCK:
            prefix = head + b"%013d" % block
            return [prefix + digits for digits in _LOW[low : low + count]]
        written: list[bytes] = []
        while count:
            here = min(count, _BLOCK - low)
            prefix = head + b"%013d" % block
            written += [prefix + digits for digits in _LOW[low : low + here]]
            block, low, count = block + 1, 0, count - here
        return written

    def runs(self, first: int, timestamps_ms: Sequence[int]) -> list[bytes]:
        """Return one section for each timestamp; the record numbers begin with `first`.

        Timestamps must not decrease.
        """
        total = len(timestamps_ms)
        # Timestamps never decrease, so equal ends mean that all are equal.
        if total and timestamps_ms[0] == timestamps_ms[total - 1]:
            return self.run(first, timestamps_ms[0], total)
        written: list[bytes] = []
        block, low = divmod(first, _BLOCK)
        previous, prefix = -1, b""
        for timestamp in timestamps_ms:
            # The prefix is joined again only where it changes: at a new timestamp, or after the last three
            # digits were 999.
            if timestamp != previous or low == _BLOCK:
                if low == _BLOCK:
                    block, low = block + 1, 0
                prefix = b"%b%b%b%013d" % (
                    self.before_timestamp,
                    timestamp.to_bytes(8),
                    self.after_timestamp,
                    block,
                )
                previous = timestamp
            written.append(prefix + _LOW[low])
            low += 1
        return written


def assemble(annotations: Sequence[bytes], stored: Sequence[bytes], header_sizes: bytes) -> list[bytes]:
    """Return complete messages: header, delivery annotations, then the rest.

    The three sequences have one element per record.
    """
    # Hot path: most messages have no header, so the annotations are simply put in front.
    if not any(header_sizes):
        return [written + message for written, message in zip(annotations, stored, strict=True)]
    parts = zip(annotations, stored, header_sizes, strict=True)
    return [message[:size] + written + message[size:] for written, message, size in parts]
