"""Writes complete messages as transfers, in batches. The caller has checked the credit (AMQP 2.6.7).

The delivery tag identifies what an outcome is about. The tag of a record has everything that a redelivery
needs: attempt (16 bits), partition (16), record number (64), big-endian. It is unique among the unsettled
deliveries of a link, because a record is sent again only after its last delivery was settled. A
message-format other than 0 follows in the tag (32 bits), and `Engine.write_formats` moves it into the
transfer. The tag of a client's message is a number (64 bits).
"""

import struct
from array import array
from collections.abc import MutableMapping, Sequence
from itertools import takewhile
from typing import Final, Protocol, TypeVar

from cproton_ffi import lib

from amqp_streams.proton import compiled
from amqp_streams.proton.pointers import Pointer, scratch
from amqp_streams.wire.annotations import AnnotationWriter, assemble
from amqp_streams.wire.batched.arrays import JoinSections
from amqp_streams.wire.offsets import OFFSET_MAX
from amqp_streams.wire.outgoing_formats import TAG_BYTES

RECORD_TAG: Final = struct.Struct(">HHQ")
"""Attempt, partition, record number."""
_FORMAT: Final = struct.Struct(">I")
join_sections: Final[JoinSections | None] = None if compiled.loops is None else compiled.loops.join_sections
"""For `write_batch`. Without the compiled loops, it makes an object for each message."""
_NUMBER_AND_FORMAT: Final = struct.Struct(">IQI")
_RECORD_HEAD: Final = struct.Struct(">HH")
_NUMBER: Final = struct.Struct(">Q")
_NO_PARTITION: Final = 0xFFFF


class Sendable(Protocol):
    """An object with an encoded message."""

    @property
    def message(self) -> bytes:
        """The bytes of the AMQP message."""

    @property
    def message_format(self) -> int:
        """The message-format (AMQP 2.7.5)."""


S = TypeVar("S", bound=Sendable)


class Records(Protocol):
    """Consecutive records of a partition, as the store returns them (`Chunk`)."""

    @property
    def base(self) -> int:
        """The number of the first record."""

    @property
    def timestamps(self) -> "array[int]":
        """When each record was stored, in ms."""

    @property
    def header_sizes(self) -> bytes:
        """The bytes of the header section at the beginning of each message."""

    @property
    def messages(self) -> Sequence[bytes]:
        """The stored messages."""


def send_records_in_python(
    link: Pointer,
    records: Records,
    writer: AnnotationWriter,
    *,
    partition: int,
    start: int,
    stop: int,
    size_max: int,
    settled: bool,
) -> tuple[int, int]:
    """Send the records with the indices `start` to before `stop`, with the delivery annotations of `writer`.

    Stops at the first message that is larger than `size_max` bytes; 0: no limit. Returns how many messages
    and how many bytes were sent. `settled`: settle when sending, so that no outcome is expected.
    """
    number, within = records.base + start, slice(start, stop)
    annotations = writer.runs(number, records.timestamps[within])
    messages = assemble(annotations, records.messages[within], records.header_sizes[within])
    if size_max:
        messages = list(takewhile(lambda message: len(message) <= size_max, messages))
    # Hot path: one tag for all records, of which only the number changes. Proton copies it.
    tag_bytes, tag = scratch.record_tag.bytes, scratch.record_tag.value
    _RECORD_HEAD.pack_into(tag_bytes, 0, 0, partition)
    new_delivery, give, advance, settle = (
        lib.pn_delivery,
        lib.pn_link_send,
        lib.pn_link_advance,
        lib.pn_delivery_settle,
    )
    number_into = _NUMBER.pack_into
    sent = 0
    for message in messages:
        number_into(tag_bytes, 4, number)
        number += 1
        delivery = new_delivery(link, tag)
        size = len(message)
        give(link, message, size)
        advance(link)
        sent += size
        if settled:
            settle(delivery)
    return len(messages), sent


def send_records_compiled(
    link: Pointer,
    records: Records,
    writer: AnnotationWriter,
    *,
    partition: int,
    start: int,
    stop: int,
    size_max: int,
    settled: bool,
) -> tuple[int, int]:
    """`send_records_in_python` as a compiled loop, which does not assemble the messages first."""
    messages = records.messages
    assert records.base + stop <= OFFSET_MAX + 1, (records.base, stop)
    sent: tuple[int, int] = compiled.loops.send_records(
        compiled.address(link),
        partition,
        records.base + start,
        writer.before_timestamp,
        writer.after_timestamp,
        records.timestamps,
        records.header_sizes,
        messages if isinstance(messages, list) else list(messages),
        start,
        stop,
        size_max,
        settled,
    )
    return sent


send_records = send_records_in_python if compiled.loops is None else send_records_compiled


def send_record(
    link: Pointer,
    *,
    attempt: int,
    partition: int,
    number: int,
    message: bytes,
    settled: bool,
    message_format: int = 0,
) -> None:
    """Send one message, for example of a record with a header section or a redelivery.

    A `message_format` other than 0 needs `Engine.write_formats` on the connection.
    """
    tag = scratch.formatted_tag if message_format else scratch.record_tag
    RECORD_TAG.pack_into(tag.bytes, 0, attempt, partition, number)
    if message_format:
        _FORMAT.pack_into(tag.bytes, TAG_BYTES, message_format)
    delivery = lib.pn_delivery(link, tag.value)
    lib.pn_link_send(link, message, len(message))
    lib.pn_link_advance(link)
    if settled:
        lib.pn_delivery_settle(delivery)


def send_message(link: Pointer, message: bytes, *, number: int) -> None:
    """Send a message that is not a record (`$info`, answers), settled."""
    send_record(link, attempt=0, partition=_NO_PARTITION, number=number, message=message, settled=True)


def send_events(
    link: Pointer,
    events: Sequence[S],
    in_flight: MutableMapping[Pointer, S],
    *,
    number: int,
    bytes_max: int,
    formatted: bool = False,
) -> int:
    """Send events with tags from `number` + 1, and add each to `in_flight` under its delivery.

    Returns how many were sent.

    Stops after the event that exceeds `bytes_max`. `formatted`: some events may have a message-format other
    than 0, and `Engine.write_formats` was called.
    """
    tag_bytes, tag, long_tag = scratch.number_tag.bytes, scratch.number_tag.value, scratch.formatted_tag
    number_into = _NUMBER.pack_into
    new_delivery, give, advance = lib.pn_delivery, lib.pn_link_send, lib.pn_link_advance
    count = sent = 0
    for event in events:
        count += 1
        number_into(tag_bytes, 0, number + count)
        if formatted and event.message_format:
            _NUMBER_AND_FORMAT.pack_into(long_tag.bytes, 0, 0, number + count, event.message_format)
            delivery = new_delivery(link, long_tag.value)
        else:
            delivery = new_delivery(link, tag)
        message = event.message
        size = len(message)
        give(link, message, size)
        advance(link)
        in_flight[delivery] = event
        sent += size
        if sent > bytes_max:
            break
    return count
