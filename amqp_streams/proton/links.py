"""Links: credit, settle modes, properties, attach and detach (AMQP 2.6, 2.7.3).

Names that are needed for each event or flow are the C functions themselves, to save the Python call.
"""

from collections.abc import Callable, Mapping
from typing import Final

from cproton_ffi import lib

from amqp_streams.errors import PeerError
from amqp_streams.proton.conditions import write_condition
from amqp_streams.proton.pointers import Pointer
from amqp_streams.proton.values import read_map, text, write_map
from amqp_streams.wire.types import Symbol

_INT_MAX: Final = (1 << 31) - 1

is_sender: Final[Callable[[Pointer], bool]] = lib.pn_link_is_sender
"""Whether this side sends on the link."""
session: Final[Callable[[Pointer], Pointer]] = lib.pn_link_session
credit: Final[Callable[[Pointer], int]] = lib.pn_link_credit
"""Sender: how many more deliveries it may send. Receiver: how many may still arrive, or have arrived and were
not advanced over.
"""
unsettled: Final[Callable[[Pointer], int]] = lib.pn_link_unsettled
"""How many deliveries are not settled on both sides."""
queued: Final[Callable[[Pointer], int]] = lib.pn_link_queued
"""Sender: how many deliveries Proton has not written yet. Receiver: how many were not advanced over."""
current: Final[Callable[[Pointer], Pointer]] = lib.pn_link_current
"""Returns the delivery to read or write next; false if none."""
peer_size_max: Final[Callable[[Pointer], int]] = lib.pn_link_remote_max_message_size
"""The largest message that the peer accepts, in bytes. 0: any size."""
wants_drain: Final[Callable[[Pointer], bool]] = lib.pn_link_get_drain
"""Whether the peer wants unused credit back (AMQP 2.6.7)."""
take_drained: Final[Callable[[Pointer], int]] = lib.pn_link_drained
"""Sender: give unused credit back. Receiver: read how much the peer gave back since the last call. Both
return the credit.
"""
drain: Final[Callable[[Pointer, int], None]] = lib.pn_link_drain
"""Receiver: grant this credit, and request the unused part back."""
is_draining: Final[Callable[[Pointer], bool]] = lib.pn_link_draining
"""Receiver: whether a requested drain is not answered yet."""
set_size_max: Final[Callable[[Pointer, int], None]] = lib.pn_link_set_max_message_size
open_link: Final[Callable[[Pointer], None]] = lib.pn_link_open
"""Attach the link. The node uses `Engine.answer_attach` instead."""
free: Final[Callable[[Pointer], None]] = lib.pn_link_free
peer_condition: Final[Callable[[Pointer], Pointer]] = lib.pn_link_remote_condition
"""The error with which the peer detached the link, for `conditions`."""


def new_sender(session: Pointer, name: str) -> Pointer:
    """Create a link on which this side sends. `open_link` attaches it."""
    return lib.pn_sender(session, name.encode())


def new_receiver(session: Pointer, name: str) -> Pointer:
    """Create a link on which this side receives. `open_link` attaches it."""
    return lib.pn_receiver(session, name.encode())


def name(link: Pointer) -> str:
    """The name of the link. Proton cuts names at a NUL character."""
    return text(lib.pn_link_name(link)) or ""


def grant(link: Pointer, count: int) -> None:
    """Grant additional credit.

    Limited to 31 bits, because Proton counts credit in a signed 32-bit integer.
    """
    lib.pn_link_flow(link, min(count, _INT_MAX))


# -- settle modes: a sender says how it settles, a receiver how it does (AMQP 2.8.2, 2.8.3)


def presettled(link: Pointer) -> bool:
    """Whether this side, the sender, settles its deliveries when it sends them."""
    return bool(lib.pn_link_snd_settle_mode(link) == lib.PN_SND_SETTLED)


def settles_second(link: Pointer) -> bool:
    """Whether the receiver settles after the sender has (rcv-settle-mode second)."""
    return bool(lib.pn_link_rcv_settle_mode(link) == lib.PN_RCV_SECOND)


def wants_presettled(link: Pointer) -> bool:
    """Whether the peer's attach requests deliveries that are settled when they are sent."""
    return bool(lib.pn_link_remote_snd_settle_mode(link) == lib.PN_SND_SETTLED)


def set_presettled(link: Pointer, *, settled: bool) -> None:
    """Set whether deliveries are settled when they are sent."""
    lib.pn_link_set_snd_settle_mode(link, lib.PN_SND_SETTLED if settled else lib.PN_SND_UNSETTLED)


def answer_settle_modes(link: Pointer, *, sends: bool) -> None:
    """Accept the settle modes that the peer requests.

    A sending node settles either all deliveries when it sends them or none: it does not support `mixed`.
    """
    if sends:
        set_presettled(link, settled=wants_presettled(link))
    else:
        lib.pn_link_set_snd_settle_mode(link, lib.pn_link_remote_snd_settle_mode(link))
    lib.pn_link_set_rcv_settle_mode(link, lib.pn_link_remote_rcv_settle_mode(link))


# -- properties


def peer_properties(link: Pointer) -> Pointer:
    """The properties in the peer's attach, for `values`."""
    return lib.pn_link_remote_properties(link)


def set_properties(link: Pointer, properties: Mapping[str, object] | Mapping[Symbol, object]) -> None:
    """Set the properties of this side's attach.

    Raises:
        WireError: a value has no AMQP type.
    """
    write_map(lib.pn_link_properties(link), properties)


def connection_properties(link: Pointer) -> dict[str, object]:
    """Return the properties in the peer's open."""
    return read_map(lib.pn_connection_remote_properties(lib.pn_session_connection(lib.pn_link_session(link))))


# -- the end


def close(link: Pointer, error: PeerError | None = None) -> None:
    """Detach with `closed`, with the error if one is given. The pointer stays valid until `free`."""
    if error is not None:
        write_condition(lib.pn_link_condition(link), error)
    lib.pn_link_close(link)


def refuse(link: Pointer, error: PeerError | None) -> None:
    """Answer an attach with a null terminus, then detach with the error (AMQP 2.6.3).

    `error` None: the client detached first.
    """
    lib.pn_terminus_set_type(lib.pn_link_source(link), lib.PN_UNSPECIFIED)
    lib.pn_terminus_set_type(lib.pn_link_target(link), lib.PN_UNSPECIFIED)
    lib.pn_link_open(link)
    close(link, error)
