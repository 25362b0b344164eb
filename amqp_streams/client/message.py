"""What the engine adds to a message for its way: the target partition going in, the place in the log coming
out.

Spec: Event Streams 4.6.2, 4.6.4, 5.1. One law: bytes that are not messages are a WireError, whatever they
are.
"""

from typing import Final, NamedTuple

from amqp_streams import names
from amqp_streams.wire.annotations import section
from amqp_streams.wire.codec import Array, Described, Symbol, Timestamp, decode, encode
from amqp_streams.wire.layout import DELIVERY_ANNOTATIONS_MAP8, HEADS_END, MESSAGE_ANNOTATIONS_HEAD
from amqp_streams.wire.sections import delivery_annotations, strip

_KEY_BYTES: Final = 9
"""Bytes that tell one layout of annotations from another: an empty header if there is one, the section's code
and its size.
"""
_LAYOUTS_MAX: Final = 64


def with_target_partition(message: bytes, partition: str) -> bytes:
    """The message with delivery annotations that send it to `partition`, in place of any it had."""
    header_size, stored = strip(message)
    return stored[:header_size] + section({names.TARGET_PARTITION: Symbol(partition)}) + stored[header_size:]


def bare(message: bytes) -> bytes:
    """The message less the annotations of the delivery that brought it: what its producer sent."""
    if message[:4] == DELIVERY_ANNOTATIONS_MAP8 and len(message) > len(DELIVERY_ANNOTATIONS_MAP8):
        stored = message[5 + message[4] :]
        if MESSAGE_ANNOTATIONS_HEAD <= stored < HEADS_END:
            return stored
    return strip(message)[1]


class Place(NamedTuple):
    """Where in its log a delivery comes from, as far as it says so."""

    partition: str | None
    offset: str | None
    timestamp_ms: int | None


class _Layout(NamedTuple):
    """Where the three values are in messages that have the bytes `fixed` at their places."""

    partition: slice
    offset: slice
    timestamp: slice
    fixed: tuple[tuple[slice, bytes], ...]


_layouts: dict[bytes, _Layout] = {}


def place_of(message: bytes) -> Place:
    """Read partition, offset and timestamp of a delivery.

    A peer lays them out alike each time: the layout is learnt once.
    """
    layout = _layouts.get(message[:_KEY_BYTES])
    if layout is not None:
        for where, what in layout.fixed:
            if message[where] != what:
                break
        else:
            return Place(
                message[layout.partition].decode(errors="replace"),
                message[layout.offset].decode(errors="replace"),
                int.from_bytes(message[layout.timestamp]),
            )
    return _decode(message)


def _decode(message: bytes) -> Place:
    annotations = delivery_annotations(message)
    partition, offset, timestamp = (
        annotations.get(Symbol(name)) for name in (names.SOURCE_PARTITION, names.OFFSET, names.TIMESTAMP)
    )
    place = Place(
        str(partition) if isinstance(partition, str) else None,
        str(offset) if isinstance(offset, str) else None,
        int(timestamp) if isinstance(timestamp, int) else None,
    )
    if (
        isinstance(partition, Symbol)
        and isinstance(offset, Symbol)
        and isinstance(timestamp, Timestamp)
        and timestamp >= 0
    ):
        _learn(message, partition, offset, timestamp)
    return place


def associated_of(message: bytes) -> tuple[str, ...] | None:
    """The partitions that a delivery says its link is associated with from now on.

    Spec: Event Streams 4.6.5.
    """
    told = delivery_annotations(message).get(Symbol(names.ASSOCIATED_PARTITIONS))
    items = told.items if isinstance(told, Array) else told
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
    if len(_layouts) >= _LAYOUTS_MAX:
        _layouts.clear()
    _layouts[message[:_KEY_BYTES]] = _Layout(slices[0], slices[1], slices[2], tuple(fixed))


def decoded(message: bytes, start: int) -> object:
    """The value of the section that starts at byte `start`."""
    value, _ = decode(message, start)
    assert isinstance(value, Described)
    return value.value
