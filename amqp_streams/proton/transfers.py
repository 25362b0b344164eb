"""The hot path: transfers, dispositions and sends through the engine's inner functions, in batches.

Law: a message is never decoded or re-encoded here; it is the bytes that came. What a call costs is what it costs to cross into C, so
each loop makes as few crossings as the engine allows. Delivery pointers die with their link: callers keep the link alive or let go.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from cproton_ffi import ffi, lib

from amqp_streams.proton.engine import Pointer
from amqp_streams.streams.consuming.outcome import Outcome
from amqp_streams.wire.formats import Endpoint, FormatFinder
from amqp_streams.wire.outgoing_formats import FORMAT_BYTES, TAG_BYTES

_BUFFER_BYTES: Final = 1 << 20
_BUFFER: Final = ffi.new("char[]", _BUFFER_BYTES)
_VIEW: Final = ffi.buffer(_BUFFER)

# A delivery tag says all that a redelivery needs: attempt (16 bits), partition (16), record number (64), big-endian. It is unique among
# a link's unsettled deliveries because a record is sent again only after its last delivery was settled.
_TAG_BYTES: Final = bytearray(TAG_BYTES)
_TAG_POINTER: Final = ffi.new("pn_bytes_t *", {"size": len(_TAG_BYTES), "start": ffi.from_buffer("char[]", _TAG_BYTES)})
_TAG: Final = _TAG_POINTER[0]
# The tag of a delivery whose message-format is not 0 has the format behind these (32 bits): it goes into the transfer in its stead, where
# `Engine.write_formats` was called.
_LONG_TAG_BYTES: Final = bytearray(TAG_BYTES + FORMAT_BYTES)
_LONG_TAG_POINTER: Final = ffi.new("pn_bytes_t *", {"size": len(_LONG_TAG_BYTES), "start": ffi.from_buffer("char[]", _LONG_TAG_BYTES)})
_LONG_TAG: Final = _LONG_TAG_POINTER[0]
_TAG_FORMAT: Final = struct.Struct(">I")
_TAG_HEAD: Final = struct.Struct(">HH")
_TAG_NUMBER: Final = struct.Struct(">Q")
_TAG_WHOLE: Final = struct.Struct(">HHQ")

_ACCEPTED: Final = lib.PN_ACCEPTED
_INT_MAX: Final = (1 << 31) - 1
_RECEIVED: Final = lib.PN_RECEIVED
_OUTCOMES: Final = {
    lib.PN_ACCEPTED: Outcome.ACCEPTED,
    lib.PN_REJECTED: Outcome.REJECTED,
    lib.PN_RELEASED: Outcome.RELEASED,
    lib.PN_MODIFIED: Outcome.MODIFIED,
}


@dataclass(slots=True, eq=False)
class Arrivals:
    """What a producer link had ready: whole messages with their deliveries, in order.

    `formats`: of each message its message-format or UNKNOWN, where they are not all 0.
    `oversized`: one grew beyond the limit. `aborted`: deliveries that their sender gave up, of which `aborted_bytes` had arrived. `kept`:
    how many bytes more than before are held of a message that is not complete.
    """

    messages: list[bytes] = field(default_factory=list)
    deliveries: list[Pointer] = field(default_factory=list)
    formats: Sequence[int] = ()
    oversized: bool = False
    aborted: int = 0
    aborted_bytes: int = 0
    kept: int = 0


def receive(link: Pointer, partial: bytearray, size_max: int) -> Arrivals:
    """Take everything that has arrived on a producer link.

    Bytes of a message that is not complete yet are moved into `partial` (kept by the caller), so that the engine never holds more than
    one read's worth and the limit is enforced while bytes arrive. Aborted deliveries are dropped (AMQP 2.7.5).
    """
    arrivals = Arrivals()
    messages, deliveries = arrivals.messages, arrivals.deliveries
    take_message, take_delivery = messages.append, deliveries.append
    current, is_partial, recv, advance = lib.pn_link_current, lib.pn_delivery_partial, lib.pn_link_recv, lib.pn_link_advance
    buffer, view, whole_max = _BUFFER, _VIEW, min(size_max, _BUFFER_BYTES - 1)
    while delivery := current(link):
        got = recv(link, buffer, _BUFFER_BYTES)
        if got <= 0 or got > whole_max or partial or is_partial(delivery):
            message = _receive_slowly(link, delivery, got, partial, size_max)
            if message is None:
                if len(partial) > size_max:
                    arrivals.oversized = True
                    break
                if not lib.pn_delivery_aborted(delivery):
                    break
                arrivals.aborted += 1
                arrivals.aborted_bytes += len(partial)
                partial.clear()
                advance(link)
                lib.pn_delivery_settle(delivery)
                continue
            take_message(message)
        else:
            take_message(view[0:got])
        advance(link)
        take_delivery(delivery)
    return arrivals


def _receive_slowly(link: Pointer, delivery: Pointer, got: int, partial: bytearray, size_max: int) -> bytes | None:
    """A delivery in several transfers, a very large or an empty one, of which `got` bytes are in the buffer.

    None: not complete, aborted, or too large (then `partial` shows it).
    """
    while got > 0:
        partial += _VIEW[0:got]
        if len(partial) > size_max:
            return None
        got = lib.pn_link_recv(link, _BUFFER, _BUFFER_BYTES)
    if lib.pn_delivery_aborted(delivery) or lib.pn_delivery_partial(delivery):
        return None
    message = bytes(partial)
    partial.clear()
    return message


def tag_of(delivery: Pointer) -> bytes:
    """The peer's tag of a delivery that is not settled here."""
    tag = lib.pn_delivery_tag(delivery)
    return bytes(ffi.buffer(tag.start, tag.size))


def formats_of(link: Pointer, deliveries: Sequence[Pointer], finder: FormatFinder, endpoint: Endpoint | None) -> Sequence[int]:
    """The message-formats of these, which are complete; empty: they are all 0."""
    current = lib.pn_link_current(link)
    formats = finder.take(endpoint, list(map(tag_of, deliveries)), tag_of(current) if current else None)
    return formats if any(formats) else ()


def accept(deliveries: Iterable[Pointer]) -> None:
    """Accept and settle; the engine tells neighbours in one disposition."""
    update, settle, accepted = lib.pn_delivery_update, lib.pn_delivery_settle, _ACCEPTED
    for delivery in deliveries:
        update(delivery, accepted)
        settle(delivery)


def accept_unsettled(deliveries: Iterable[Pointer]) -> None:
    """Accept; the sender settles first (rcv-settle-mode second), if it has not done so already."""
    for delivery in deliveries:
        lib.pn_delivery_update(delivery, _ACCEPTED)
        if lib.pn_delivery_settled(delivery):
            lib.pn_delivery_settle(delivery)


def grant(link: Pointer, count: int) -> None:
    """Give the peer so much more credit; less if its delivery-count ran far ahead of what it had: the engine counts in 32 bits."""
    lib.pn_link_flow(link, min(count, _INT_MAX))


def discard(link: Pointer) -> None:
    """Drop everything that has arrived on a link that is refused, closing or gone: nothing of it stays in memory."""
    while delivery := lib.pn_link_current(link):
        while lib.pn_link_recv(link, _BUFFER, _BUFFER_BYTES) > 0:
            pass
        if lib.pn_delivery_partial(delivery) and not lib.pn_delivery_aborted(delivery):
            return
        lib.pn_link_advance(link)
        lib.pn_delivery_settle(delivery)


def reject(delivery: Pointer, condition: str, description: str, *, settle: bool = True) -> None:
    """Refuse one message for good, saying why. Without `settle` the sender settles first."""
    error = lib.pn_disposition_condition(lib.pn_delivery_local(delivery))
    lib.pn_condition_set_name(error, condition.encode())
    lib.pn_condition_set_description(error, description.encode())
    lib.pn_delivery_update(delivery, lib.PN_REJECTED)
    if settle:
        lib.pn_delivery_settle(delivery)


def modify_failed(delivery: Pointer, *, settle: bool = True) -> None:
    """Not stored for a fault of ours: the sender may try again. Without `settle` the sender settles first."""
    lib.pn_disposition_set_failed(lib.pn_delivery_local(delivery), True)
    lib.pn_delivery_update(delivery, lib.PN_MODIFIED)
    if settle:
        lib.pn_delivery_settle(delivery)


def send(link: Pointer, *, partition: int, first: int, messages: Sequence[bytes], settled: bool) -> int:
    """Send the whole messages of consecutive records; returns the bytes sent.

    The caller has seen to credit. With `settled` nothing is expected back.
    """
    _TAG_HEAD.pack_into(_TAG_BYTES, 0, 0, partition)
    new_delivery, give, advance, settle = lib.pn_delivery, lib.pn_link_send, lib.pn_link_advance, lib.pn_delivery_settle
    number_into, tag_bytes, tag = _TAG_NUMBER.pack_into, _TAG_BYTES, _TAG
    sent = 0
    number = first
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
    return sent


def send_one(link: Pointer, *, attempt: int, partition: int, number: int, message: bytes, settled: bool, message_format: int = 0) -> None:
    """Send one complete message (a record with a header section, a redelivery).

    A `message_format` that is not 0 is for links of connections where `Engine.write_formats` was called.
    """
    if message_format:
        _TAG_WHOLE.pack_into(_LONG_TAG_BYTES, 0, attempt, partition, number)
        _TAG_FORMAT.pack_into(_LONG_TAG_BYTES, TAG_BYTES, message_format)
        delivery = lib.pn_delivery(link, _LONG_TAG)
    else:
        _TAG_WHOLE.pack_into(_TAG_BYTES, 0, attempt, partition, number)
        delivery = lib.pn_delivery(link, _TAG)
    lib.pn_link_send(link, message, len(message))
    lib.pn_link_advance(link)
    if settled:
        lib.pn_delivery_settle(delivery)


def send_message(link: Pointer, message: bytes, *, number: int) -> None:
    """Send a message that is not a record (`$info`, answers), settled."""
    send_one(link, attempt=0, partition=0xFFFF, number=number, message=message, settled=True)


@dataclass(frozen=True, slots=True)
class Returned:
    """A consumer's outcome other than accepted, with the record it is about."""

    outcome: Outcome
    failed: bool
    undeliverable_here: bool
    attempt: int
    partition: int
    number: int


def settle_outgoing(delivery: Pointer) -> Returned | None:
    """Take note of a consumer's disposition and settle. None: accepted, or nothing final yet."""
    state = lib.pn_delivery_remote_state(delivery)
    if state == _ACCEPTED:
        lib.pn_delivery_settle(delivery)
        return None
    return _settle_exception(delivery, state)


def settle_accepted(delivery: Pointer) -> tuple[int, int] | None:
    """Settle a delivery that was accepted, telling which record it was: partition, number. None: nothing was done, for it was not."""
    if lib.pn_delivery_remote_state(delivery) != _ACCEPTED:
        return None
    tag = lib.pn_delivery_tag(delivery)
    _, partition, number = _TAG_WHOLE.unpack_from(ffi.buffer(tag.start, tag.size))
    lib.pn_delivery_settle(delivery)
    return partition, number


def done_with(delivery: Pointer) -> tuple[int, int] | None:
    """Which record a delivery is that was accepted or rejected and that its receiver has not settled: partition, number. None: another."""
    if lib.pn_delivery_remote_state(delivery) not in (_ACCEPTED, lib.PN_REJECTED) or lib.pn_delivery_settled(delivery):
        return None
    tag = lib.pn_delivery_tag(delivery)
    _, partition, number = _TAG_WHOLE.unpack_from(ffi.buffer(tag.start, tag.size))
    return partition, number


def settle(deliveries: Iterable[Pointer]) -> None:
    """Settle, whatever their outcome."""
    for delivery in deliveries:
        lib.pn_delivery_settle(delivery)


def _settle_exception(delivery: Pointer, state: int) -> Returned | None:
    if not lib.pn_delivery_settled(delivery) and state in (0, _RECEIVED):
        return None
    tag = lib.pn_delivery_tag(delivery)
    attempt, partition, number = _TAG_WHOLE.unpack_from(ffi.buffer(tag.start, tag.size))
    remote = lib.pn_delivery_remote(delivery)
    returned = Returned(
        outcome=_OUTCOMES.get(state, Outcome.NONE),
        failed=bool(lib.pn_disposition_is_failed(remote)),
        undeliverable_here=bool(lib.pn_disposition_is_undeliverable(remote)),
        attempt=attempt,
        partition=partition,
        number=number,
    )
    lib.pn_delivery_settle(delivery)
    return returned
