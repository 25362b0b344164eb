"""The number that a producer gives to an event, in the delivery annotations: `x-opt-amqp-streams-sequence`,
an integer from 0 on.

    00 53 71                                     delivery annotations
    c1 27 02                                     a map of one pair
    a3 1b x-opt-amqp-streams-sequence  80 <8 bytes>

So our client writes it, Proton's with a wide map, behind the empty header that all its messages begin with; a
batch of messages that look alike in this way is taken apart in a few loops in C. Everything else is
understood, too, just slower.
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
_WIDE_FRONT: Final = (
    _DESCRIPTOR + struct.pack(">BII", 0xD1, 4 + len(_KEY) + 1 + _NUMBER_BYTES, 2) + _KEY + b"\x80"
)
_NEXT: Final = bytes((0, 0x53, MESSAGE_ANNOTATIONS))
_END: Final = bytes((0, 0x53, VALUE + 2))
_PACK: Final = struct.Struct(">Q").pack
_SWAP: Final = sys.byteorder == "little"


class Split(NamedTuple):
    """A batch taken apart: each message's number, what is stored of it, the size of its header section, and
    its format (None: all 0).
    """

    sequences: "array[int]"
    stored: list[bytes]
    header_sizes: bytes
    formats: "array[int] | None" = None


def split_batch(messages: list[bytes]) -> Split | None:
    """Numbers and stored bytes of messages that all look as our client, or Proton's, writes them;

    None: ask each.
    """
    header = EMPTY_HEADER if messages[0].startswith(EMPTY_HEADER) else b""
    front = header + (_FRONT if messages[0].startswith(_FRONT, len(header)) else _WIDE_FRONT)
    size, end = len(front), len(front) + _NUMBER_BYTES
    if {message[:size] for message in messages} != {front}:
        return None
    stored = [message[end:] for message in messages]
    if min(stored) < _NEXT or max(stored) >= _END:
        return None
    sequences = array("Q", b"".join([message[size:end] for message in messages]))
    if _SWAP:
        sequences.byteswap()
    if header:
        stored = [header + rest for rest in stored]
    return Split(sequences, stored, bytes((len(header),)) * len(messages))


def sequence_of(message: bytes) -> int | None:
    """The number that a message carries; None: it has none.

    Raises:
        WireError: it is not an integer from 0 to 2^64 - 1, or the sections up to it are broken.
    """
    extent = find_section(message, DELIVERY_ANNOTATIONS)
    if extent is None:
        return None
    if extent.end - extent.start > ANNOTATIONS_SIZE_MAX:
        text = (
            f"delivery-annotations of {extent.end - extent.start} bytes; {ANNOTATIONS_SIZE_MAX} are allowed"
            f" with {SEQUENCE}"
        )
        raise WireError(text)
    value = delivery_annotations(message).get(Symbol(SEQUENCE))
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool | Timestamp) or not 0 <= value <= SEQUENCE_MAX:
        text = (
            f"{SEQUENCE} is {str(value)[:40]!r} ({type(value).__name__}), not an integer from 0 to"
            f" {SEQUENCE_MAX}"
        )
        raise WireError(text)
    return int(value)


def with_sequences(messages: Sequence[bytes], sequences: Iterable[int]) -> list[bytes]:
    """What `with_sequence` makes of each."""
    if min(messages) >= _NEXT and max(messages) < _END:
        front, pack = _FRONT, _PACK
        return [
            front + pack(sequence) + message for message, sequence in zip(messages, sequences, strict=True)
        ]
    return [with_sequence(message, sequence) for message, sequence in zip(messages, sequences, strict=True)]


def with_sequence(message: bytes, sequence: int) -> bytes:
    """The message with this number in its delivery annotations, beside what else is there.

    Raises:
        WireError: it is not a message.
    """
    if _NEXT <= message < _END:
        return _FRONT + sequence.to_bytes(_NUMBER_BYTES) + message
    header_size, stored = strip(message)
    annotations = delivery_annotations(message)
    if not annotations:
        return stored[:header_size] + _FRONT + sequence.to_bytes(_NUMBER_BYTES) + stored[header_size:]
    annotations[Symbol(SEQUENCE)] = ULong(sequence)
    return stored[:header_size] + _DESCRIPTOR + encode(annotations) + stored[header_size:]
