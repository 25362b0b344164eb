"""What the engine and the client add to a message for one hop.

The target partition when it is sent, and partition, offset and timestamp when it is delivered. All are
delivery annotations.

Law: for bytes that are not an AMQP message every function raises WireError and nothing else. Spec: Event
Streams 4.6.2, 4.6.4, 5.1.
"""

from typing import Final, NamedTuple

from amqp_streams import names
from amqp_streams.wire.annotations import section
from amqp_streams.wire.codec import Array, Described, Symbol, Timestamp, decode, encode
from amqp_streams.wire.layout import DELIVERY_ANNOTATIONS_MAP8, HEADS_END, MESSAGE_ANNOTATIONS_HEAD
from amqp_streams.wire.offsets import offset_number
from amqp_streams.wire.sections import delivery_annotations, strip

_KEY_BYTES: Final = 9
"""Length of the prefix that identifies a layout of annotations: an optional empty header, the section's code
and its size.
"""
_LAYOUTS_MAX: Final = 64


def with_target_partition(message: bytes, partition: str) -> bytes:
    """Return the message with delivery annotations that send it to `partition`.

    They replace existing ones.
    """
    header_size, stored = strip(message)
    return stored[:header_size] + section({names.TARGET_PARTITION: Symbol(partition)}) + stored[header_size:]


def bare(message: bytes) -> bytes:
    """Return the message without its delivery annotations, that is, as its producer sent it."""
    # Hot path: the usual layout, a short map before the message annotations, needs no parser.
    if message[:4] == DELIVERY_ANNOTATIONS_MAP8 and len(message) > len(DELIVERY_ANNOTATIONS_MAP8):
        stored = message[5 + message[4] :]
        if MESSAGE_ANNOTATIONS_HEAD <= stored < HEADS_END:
            return stored
    return strip(message)[1]


class EventPosition(NamedTuple):
    """Partition, offset and storage time of a delivery. A value is None if the delivery does not contain it.

    An offset that is not a text of 16 decimal digits, as event log nodes send it, is None as well.
    """

    partition: str | None
    offset: int | None
    timestamp_ms: int | None


class _Layout(NamedTuple):
    """Byte ranges of the three values in messages that have the bytes `fixed` at the same positions."""

    partition: slice
    offset: slice
    timestamp: slice
    fixed: tuple[tuple[slice, bytes], ...]


_layouts: dict[bytes, _Layout] = {}


class Delivered(NamedTuple):
    """A delivery: its offset as the node writes it (16 digits), its storage time, and the message without
    delivery annotations.
    """

    offset: str
    timestamp_ms: int
    message: bytes


def delivered(message: bytes) -> Delivered | None:
    """Take a delivery apart; None if it does not have the usual layout (see `position_of`, `bare`).

    Hot path: half the cost of `position_of` and `bare`.
    """
    layout = _layouts.get(message[:_KEY_BYTES])
    if layout is None or message[:4] != DELIVERY_ANNOTATIONS_MAP8:
        return None
    for where, what in layout.fixed:
        if message[where] != what:
            return None
    digits, stored = message[layout.offset], message[5 + message[4] :]
    if not digits.isdigit() or not MESSAGE_ANNOTATIONS_HEAD <= stored < HEADS_END:
        return None
    return Delivered(digits.decode(), int.from_bytes(message[layout.timestamp]), stored)


def position_of(message: bytes) -> EventPosition:
    """Read partition, offset and timestamp of a delivery.

    Hot path: a node writes the annotations of all messages in the same layout. The layout is learned from the
    first message and only verified in the others.
    """
    layout = _layouts.get(message[:_KEY_BYTES])
    if layout is not None:
        for where, what in layout.fixed:
            if message[where] != what:
                break
        else:
            digits = message[layout.offset]
            return EventPosition(
                message[layout.partition].decode(errors="replace"),
                int(digits) if digits.isdigit() else None,
                int.from_bytes(message[layout.timestamp]),
            )
    return _decode(message)


def _decode(message: bytes) -> EventPosition:
    annotations = delivery_annotations(message)
    partition, offset, timestamp = (
        annotations.get(Symbol(name)) for name in (names.SOURCE_PARTITION, names.OFFSET, names.TIMESTAMP)
    )
    position = EventPosition(
        str(partition) if isinstance(partition, str) else None,
        offset_number(offset),
        int(timestamp) if isinstance(timestamp, int) else None,
    )
    if (
        isinstance(partition, Symbol)
        and isinstance(offset, Symbol)
        and position.offset is not None  # what is learnt is where the 16 digits are
        and isinstance(timestamp, Timestamp)
        and timestamp >= 0
    ):
        _learn(message, partition, offset, timestamp)
    return position


def associated_of(message: bytes) -> tuple[str, ...] | None:
    """Return the partitions that the link is associated with from this delivery on.

    None if the delivery does not name them.

    Spec: Event Streams 4.6.5.
    """
    sent = delivery_annotations(message).get(Symbol(names.ASSOCIATED_PARTITIONS))
    items = sent.items if isinstance(sent, Array) else sent
    return tuple(str(item) for item in items) if isinstance(items, tuple | list) else None


def _learn(message: bytes, partition: Symbol, offset: Symbol, timestamp: Timestamp) -> None:
    slices, fixed = [], []
    for name, value, head in (
        (names.SOURCE_PARTITION, encode(partition), 2),
        (names.OFFSET, encode(offset), 2),
        (names.TIMESTAMP, encode(timestamp), 1),
    ):
        key = encode(Symbol(name))
        start = message.find(key + value)
        if start < 0:
            return
        at = start + len(key)
        slices.append(slice(at + head, at + len(value)))
        fixed.append((slice(start, at + head), message[start : at + head]))
    # A peer that varies its layout must not fill the memory. The table starts again from empty.
    if len(_layouts) >= _LAYOUTS_MAX:
        _layouts.clear()
    _layouts[message[:_KEY_BYTES]] = _Layout(slices[0], slices[1], slices[2], tuple(fixed))


def decoded(message: bytes, start: int) -> object:
    """Return the value of the section that starts at byte `start`."""
    value, _ = decode(message, start)
    assert isinstance(value, Described)
    return value.value
