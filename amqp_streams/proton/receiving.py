"""Whole messages out of the transfers of a link, in batches (AMQP 2.6.14).

Laws: a message is the bytes that came. What a call costs is what it costs to cross into C, so each loop makes
as few crossings as the engine allows. Delivery pointers die with their link: callers keep the link alive, or
let go.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat

from cproton_ffi import ffi, lib

from amqp_streams.proton.pointers import BUFFER_BYTES, Pointer, scratch
from amqp_streams.wire.formats import Endpoint, FormatFinder


@dataclass(slots=True, eq=False)
class Arrivals:
    """The complete messages that have arrived on a link, with their deliveries, in order.

    `formats`: the message-format of each message, or UNKNOWN; empty if all are 0.
    `oversized`: a message is larger than the limit.
    `aborted`: how many deliveries the sender aborted. `aborted_bytes`: their bytes that had arrived.
    `kept`: by how many bytes the stored part of an incomplete message has grown.
    """

    messages: list[bytes] = field(default_factory=list)
    deliveries: list[Pointer] = field(default_factory=list)
    formats: Sequence[int] = ()
    oversized: bool = False
    aborted: int = 0
    aborted_bytes: int = 0
    kept: int = 0


def receive(link: Pointer, partial: bytearray, size_max: int, count_max: int = sys.maxsize) -> Arrivals:
    """Take what has arrived on a link, of at most `count_max` deliveries.

    Bytes of a message that is not complete yet are moved into `partial` (kept by the caller), so that the
    engine never holds more than one read's worth and the limit is enforced while bytes arrive. Aborted
    deliveries are dropped (AMQP 2.7.5).
    """
    arrivals, memory, held = Arrivals(), scratch, len(partial)
    messages, deliveries = arrivals.messages, arrivals.deliveries
    take_message, take_delivery = messages.append, deliveries.append
    current, is_partial, recv, advance = (
        lib.pn_link_current,
        lib.pn_delivery_partial,
        lib.pn_link_recv,
        lib.pn_link_advance,
    )
    buffer, view, whole_max = memory.buffer, memory.view, min(size_max, BUFFER_BYTES - 1)
    for _ in repeat(None, count_max):
        delivery = current(link)
        if not delivery:
            break
        got = recv(link, buffer, BUFFER_BYTES)
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
    arrivals.kept = len(partial) - held
    return arrivals


def _receive_slowly(
    link: Pointer, delivery: Pointer, got: int, partial: bytearray, size_max: int
) -> bytes | None:
    """A delivery in several transfers, a very large or an empty one, of which `got` bytes are in the buffer.

    None: not complete, aborted, or too large (then `partial` shows it).
    """
    memory = scratch
    while got > 0:
        partial += memory.view[0:got]
        if len(partial) > size_max:
            return None
        got = lib.pn_link_recv(link, memory.buffer, BUFFER_BYTES)
    if lib.pn_delivery_aborted(delivery) or lib.pn_delivery_partial(delivery):
        return None
    message = bytes(partial)
    partial.clear()
    return message


def discard(link: Pointer) -> None:
    """Drop everything that has arrived on a link that is refused, closing or gone: nothing of it stays in
    memory.
    """
    buffer = scratch.buffer
    while delivery := lib.pn_link_current(link):
        while lib.pn_link_recv(link, buffer, BUFFER_BYTES) > 0:
            pass
        if lib.pn_delivery_partial(delivery) and not lib.pn_delivery_aborted(delivery):
            return
        lib.pn_link_advance(link)
        lib.pn_delivery_settle(delivery)


def tag_of(delivery: Pointer) -> bytes:
    """The peer's tag of a delivery that is not settled here."""
    tag = lib.pn_delivery_tag(delivery)
    return bytes(ffi.buffer(tag.start, tag.size))


def formats_of(
    link: Pointer, deliveries: Sequence[Pointer], finder: FormatFinder, endpoint: Endpoint | None
) -> Sequence[int]:
    """The message-formats of these, which are complete; empty: they are all 0."""
    current = lib.pn_link_current(link)
    formats = finder.take(endpoint, list(map(tag_of, deliveries)), tag_of(current) if current else None)
    return formats if any(formats) else ()
