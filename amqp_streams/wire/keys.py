"""The group key of an event as a producer writes it.

A section of message annotations with one entry (Event Streams 4.6.4).

00 53 72                                        message annotations
c1 <size> 02                                    a map of one pair
a3 17 event-streams-group-key  a1 <n> <key>     the key, a string
"""

from typing import Final

from amqp_streams.names import GROUP_KEY
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.layout import MESSAGE_ANNOTATIONS_HEAD, MESSAGE_ANNOTATIONS_MAP8
from amqp_streams.wire.types import Symbol

_NAME: Final = encode(Symbol(GROUP_KEY)) + b"\xa1"
_SHORT_MAX: Final = 255 - 2 - len(_NAME)
"""Bytes of the longest key whose map has a size of one byte."""
_HEADS: Final = tuple(
    MESSAGE_ANNOTATIONS_MAP8 + bytes((len(_NAME) + length + 2, 2)) + _NAME + bytes((length,))
    for length in range(_SHORT_MAX + 1)
)


def key_section(key: str) -> bytes:
    """Encode the message annotations of an event that has a key and no other annotation.

    They are the first bytes of its message.
    """
    # By bytes, not characters: the size on the wire decides which form fits.
    text = key.encode()
    if len(text) <= _SHORT_MAX:
        return _HEADS[len(text)] + text
    return MESSAGE_ANNOTATIONS_HEAD + encode({Symbol(GROUP_KEY): key})
