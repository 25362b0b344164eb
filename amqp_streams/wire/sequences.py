"""The sequence number of an event: the delivery annotation `x-opt-amqp-streams-sequence`, an integer from 0.

    00 53 71                                     delivery annotations
    c1 27 02                                     a map of one pair
    a3 1b x-opt-amqp-streams-sequence  80 <8 bytes>

Our client writes these bytes at the beginning of a message. Proton's client writes an empty header first, and
a map with a size of 4 bytes. A batch in which all messages begin with the same one of these forms is split
with a few loops in C. Every other encoding is read too, but more slowly.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from amqp_streams.errors import WireError
from amqp_streams.names import SEQUENCE
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.layout import (
    DELIVERY_ANNOTATIONS,
    EMPTY_HEADER,
    MESSAGE_ANNOTATIONS,
    VALUE,
    find_section,
)
from amqp_streams.wire.sections import ANNOTATIONS_SIZE_MAX, delivery_annotations, strip
from amqp_streams.wire.types import Symbol, Timestamp, ULong

SEQUENCE_MAX: Final = (1 << 64) - 1

_NUMBER_BYTES: Final = 8
_KEY: Final = encode(Symbol(SEQUENCE))
_DESCRIPTOR: Final = bytes((0, 0x53, DELIVERY_ANNOTATIONS))
_FRONT: Final = _DESCRIPTOR + bytes((0xC1, 1 + len(_KEY) + 1 + _NUMBER_BYTES, 2)) + _KEY + b"\x80"
SEQUENCE_FRONT: Final = _FRONT
"""What our client writes in front of a message and its number (8 bytes, big-endian)."""
_WIDE_FRONT: Final = (
    _DESCRIPTOR + struct.pack(">BII", 0xD1, 4 + len(_KEY) + 1 + _NUMBER_BYTES, 2) + _KEY + b"\x80"
)
_NEXT: Final = bytes((0, 0x53, MESSAGE_ANNOTATIONS))
_END: Final = bytes((0, 0x53, VALUE + 2))
_PACK: Final = struct.Struct(">Q").pack
_SWAP: Final = sys.byteorder == "little"


class Split(NamedTuple):
    """The parts of a batch, each in the order of the messages.

    Sequence numbers, bytes to store, sizes of the header sections, and message-formats (None: all are 0).
    """

    sequences: "array[int]"
    stored: Sequence[bytes]
    header_sizes: bytes
    formats: "array[int] | None" = None


def split_batch(messages: Sequence[bytes]) -> Split | None:
    """Split a batch in which all messages have the same of the two usual forms.

    None: at least one message has another form; use `sequence_of` and `strip` for each message.
    """
    header = EMPTY_HEADER if messages[0].startswith(EMPTY_HEADER) else b""
    front = header + (_FRONT if messages[0].startswith(_FRONT, len(header)) else _WIDE_FRONT)
    size, end = len(front), len(front) + _NUMBER_BYTES
    # Slices and a set are made in C. A loop with comparisons would cost several times as much.
    if {message[:size] for message in messages} != {front}:
        return None
    stored = [message[end:] for message in messages]
    # More annotations, or sections out of order: the slow path reads or refuses them.
    if min(stored) < _NEXT or max(stored) >= _END:
        return None
    # One conversion for the whole batch, in the byte order of the wire.
    sequences = array("Q", b"".join([message[size:end] for message in messages]))
    if _SWAP:
        sequences.byteswap()
    if header:
        stored = [header + rest for rest in stored]
    return Split(sequences, stored, bytes((len(header),)) * len(messages))


def sequence_of(message: bytes) -> int | None:
    """Return the sequence number of a message; None if it does not have one.

    Raises:
        WireError: the number is not an integer from 0 to 2^64 - 1, or the sections up to it are malformed.
    """
    extent = find_section(message, DELIVERY_ANNOTATIONS)
    if extent is None:
        return None
    # Decoding costs a step of Python for each entry.
    if extent.end - extent.start > ANNOTATIONS_SIZE_MAX:
        text = (
            f"delivery-annotations has {extent.end - extent.start} bytes; at most {ANNOTATIONS_SIZE_MAX} are"
            f" allowed with {SEQUENCE}"
        )
        raise WireError(text)
    value = delivery_annotations(message).get(Symbol(SEQUENCE))
    if value is None:
        return None
    # Booleans and timestamps are integers in Python, but have other types in AMQP.
    if not isinstance(value, int) or isinstance(value, bool | Timestamp) or not 0 <= value <= SEQUENCE_MAX:
        text = (
            f"{SEQUENCE} is {str(value)[:40]!r} ({type(value).__name__}), not an integer from 0 to"
            f" {SEQUENCE_MAX}"
        )
        raise WireError(text)
    return int(value)


def with_sequences(messages: Sequence[bytes], sequences: Iterable[int]) -> list[bytes]:
    """Return the messages with their sequence numbers, as `with_sequence` does, but faster."""
    # Messages without header and delivery annotations, as this client encodes them: the numbers go in front.
    if min(messages) >= _NEXT and max(messages) < _END:
        front, pack = _FRONT, _PACK
        return [
            front + pack(sequence) + message for message, sequence in zip(messages, sequences, strict=True)
        ]
    return [with_sequence(message, sequence) for message, sequence in zip(messages, sequences, strict=True)]


def with_sequence(message: bytes, sequence: int) -> bytes:
    """Return the message with this sequence number in its delivery annotations. Other annotations remain.

    Raises:
        WireError: the message is malformed.
    """
    if _NEXT <= message < _END:
        return _FRONT + sequence.to_bytes(_NUMBER_BYTES) + message
    header_size, stored = strip(message)
    annotations = delivery_annotations(message)
    if not annotations:
        return stored[:header_size] + _FRONT + sequence.to_bytes(_NUMBER_BYTES) + stored[header_size:]
    annotations[Symbol(SEQUENCE)] = ULong(sequence)
    return stored[:header_size] + _DESCRIPTOR + encode(annotations) + stored[header_size:]
