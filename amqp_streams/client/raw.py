"""Bytes of AMQP messages, for programs that make and read them themselves (AMQP 1.0 core 3.2). Pure.

What `Producer.post_batch` takes and `Consumer.receive_raw` gives are such bytes. This is the wire package's
face for users of the client.
"""

from amqp_streams.client.message import Place, bare, place_of
from amqp_streams.errors import WireError
from amqp_streams.wire.codec import Described, Symbol, Timestamp, decode, encode, encode_list
from amqp_streams.wire.keys import key_section
from amqp_streams.wire.layout import (
    APPLICATION_PROPERTIES,
    DATA,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Section,
    sections,
)

__all__ = [
    "APPLICATION_PROPERTIES",
    "DATA",
    "PROPERTIES",
    "SEQUENCE",
    "VALUE",
    "Described",
    "Place",
    "Section",
    "Symbol",
    "Timestamp",
    "WireError",
    "bare",
    "decode",
    "encode",
    "encode_list",
    "key_section",
    "place_of",
    "sections",
]
