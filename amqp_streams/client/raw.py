"""Functions for the bytes of AMQP messages (AMQP 1.0 core 3.2). Pure.

For programs that read or write messages themselves.

`Producer.post_batch` accepts such bytes, and `Consumer.receive_raw` returns them. This module re-exports what
users of the client may use of the `wire` package.
"""

from amqp_streams.client.message import Delivered, EventPosition, bare, delivered, position_of
from amqp_streams.errors import WireError
from amqp_streams.wire.batched.arrays import SECTION_BYTES, Sections
from amqp_streams.wire.batched.sends import BATCH_OVERHEAD_BYTES, encoded_batch
from amqp_streams.wire.codec import Described, Symbol, Timestamp, decode, encode, encode_list
from amqp_streams.wire.keys import key_section
from amqp_streams.wire.layout import (
    APPLICATION_PROPERTIES,
    DATA,
    DATA_BINARY32,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Section,
    sections,
)
from amqp_streams.wire.sequences import SEQUENCE_FRONT

__all__ = [
    "APPLICATION_PROPERTIES",
    "BATCH_OVERHEAD_BYTES",
    "DATA",
    "DATA_BINARY32",
    "PROPERTIES",
    "SECTION_BYTES",
    "SEQUENCE",
    "SEQUENCE_FRONT",
    "VALUE",
    "Delivered",
    "Described",
    "EventPosition",
    "Section",
    "Sections",
    "Symbol",
    "Timestamp",
    "WireError",
    "bare",
    "decode",
    "delivered",
    "encode",
    "encode_list",
    "encoded_batch",
    "key_section",
    "position_of",
    "sections",
]
