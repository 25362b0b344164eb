"""Reads complete messages from the transfers of a link, in batches (AMQP 2.6.14).

Laws: a message is returned exactly as received. The cost of a call is mainly the number of C calls, so each
loop makes as few as possible. Delivery pointers become invalid with their link.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final

from cproton_ffi import ffi, lib

from amqp_streams.proton import compiled
from amqp_streams.proton.pointers import BUFFER_BYTES, Pointer, scratch
from amqp_streams.wire.batched.arrays import SplitSections
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
    deliveries: Sequence[Pointer] = field(default_factory=list)
    formats: Sequence[int] = ()
    oversized: bool = False
    aborted: int = 0
    aborted_bytes: int = 0
    kept: int = 0


def receive_in_python(
    link: Pointer, partial: bytearray, size_max: int, count_max: int = sys.maxsize
) -> Arrivals:
    """Take up to `count_max` deliveries that have arrived on a link.

    Bytes of an incomplete message are moved into `partial`, which the caller keeps. Proton therefore never
    holds more than one read, and the limit applies while bytes arrive. Aborted deliveries are dropped (AMQP
    2.7.5).
    """
    deliveries: list[Pointer] = []
    arrivals, memory, held = Arrivals(deliveries=deliveries), scratch, len(partial)
    take_message, take_delivery = arrivals.messages.append, deliveries.append
    # Hot path: local names, and only three C calls for a message that arrived whole.
    current, is_partial, recv, advance = (
        lib.pn_link_current,
        lib.pn_delivery_partial,
        lib.pn_link_recv,
        lib.pn_link_advance,
    )
    # A read that fills the buffer may have more to come.
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
                # An incomplete message: wait for its next transfer.
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


def receive_compiled(
    link: Pointer, partial: bytearray, size_max: int, count_max: int = sys.maxsize
) -> Arrivals:
    """`receive_in_python` with the usual deliveries, which arrive in one piece, taken by a compiled loop."""
    deliveries = compiled.Deliveries()
    arrivals, held = Arrivals(deliveries=deliveries), len(partial)
    messages, addresses = arrivals.messages, deliveries.addresses
    take_whole, link_address, current = compiled.loops.receive, compiled.address(link), lib.pn_link_current
    while count_max > 0:
        if not partial:
            count_max -= take_whole(link_address, messages, addresses, size_max, count_max)
        if not count_max or not current(link):
            break
        other = receive_in_python(link, partial, size_max, 1)
        if not other.deliveries and not other.aborted:
            arrivals.oversized = other.oversized
            break
        messages += other.messages
        for delivery in other.deliveries:
            deliveries.append(delivery)
        arrivals.aborted += other.aborted
        arrivals.aborted_bytes += other.aborted_bytes
        count_max -= 1
    arrivals.kept = len(partial) - held
    return arrivals


receive = receive_in_python if compiled.loops is None else receive_compiled
split_sections: Final[SplitSections | None] = (
    None if compiled.loops is None else compiled.loops.split_sections
)
"""For batched sends. Without the compiled loops, each event of a batch is a copy of its own."""


def _receive_slowly(
    link: Pointer, delivery: Pointer, got: int, partial: bytearray, size_max: int
) -> bytes | None:
    """Read a delivery that is empty, very large or in several transfers.

    The first `got` bytes are in the buffer.

    None: it is incomplete, aborted, or too large (then `partial` is longer than `size_max`).
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
    """Drop everything that has arrived on a link that is refused, closing or gone.

    It must not occupy memory. A complete delivery is released: without an outcome, its sender could take it
    for accepted.
    """
    buffer = scratch.buffer
    while delivery := lib.pn_link_current(link):
        while lib.pn_link_recv(link, buffer, BUFFER_BYTES) > 0:
            pass
        # More transfers of this delivery follow: it cannot be settled yet.
        if lib.pn_delivery_partial(delivery) and not lib.pn_delivery_aborted(delivery):
            return
        lib.pn_link_advance(link)
        if not lib.pn_delivery_aborted(delivery):
            lib.pn_delivery_update(delivery, lib.PN_RELEASED)
        lib.pn_delivery_settle(delivery)


def tag_of(delivery: Pointer) -> bytes:
    """Return the peer's tag of a delivery that this side has not settled."""
    tag = lib.pn_delivery_tag(delivery)
    return bytes(ffi.buffer(tag.start, tag.size))


def formats_of(
    link: Pointer, deliveries: Sequence[Pointer], finder: FormatFinder, endpoint: Endpoint | None
) -> Sequence[int]:
    """Return the message-formats of these complete deliveries; empty if all are 0."""
    current = lib.pn_link_current(link)
    formats = finder.take(endpoint, list(map(tag_of, deliveries)), tag_of(current) if current else None)
    return formats if any(formats) else ()
