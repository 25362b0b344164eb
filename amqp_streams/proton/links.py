"""One link: its credit, its settle modes, its properties, and the ends of its life (AMQP 2.6, 2.7.3).

What is asked for each event or flow is the C function itself.
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
"""Whether this side sends on it."""
session: Final[Callable[[Pointer], Pointer]] = lib.pn_link_session
credit: Final[Callable[[Pointer], int]] = lib.pn_link_credit
"""Of a sender: how many more it may send.

Of a receiver: how many may come, or have come and were not advanced over.
"""
unsettled: Final[Callable[[Pointer], int]] = lib.pn_link_unsettled
"""Deliveries that are not settled on both sides."""
queued: Final[Callable[[Pointer], int]] = lib.pn_link_queued
"""Deliveries of a sender that the engine has not written yet, of a receiver that were not advanced over."""
current: Final[Callable[[Pointer], Pointer]] = lib.pn_link_current
"""The delivery that is to be read or written next; false when there is none."""
peer_size_max: Final[Callable[[Pointer], int]] = lib.pn_link_remote_max_message_size
"""The largest message that the peer takes; 0: any."""
wants_drain: Final[Callable[[Pointer], bool]] = lib.pn_link_get_drain
"""The peer asks for its credit back when there is nothing to send (AMQP 2.6.7)."""
take_drained: Final[Callable[[Pointer], int]] = lib.pn_link_drained
"""Sender: give the credit back.

Receiver: the credit that was given back since the last call. Both: how much.
"""
drain: Final[Callable[[Pointer, int], None]] = lib.pn_link_drain
"""Receiver: give so much credit, and ask for what the peer has nothing for."""
is_draining: Final[Callable[[Pointer], bool]] = lib.pn_link_draining
"""Receiver: a drain was asked for and is not answered."""
set_size_max: Final[Callable[[Pointer, int], None]] = lib.pn_link_set_max_message_size
open_link: Final[Callable[[Pointer], None]] = lib.pn_link_open
"""Attach. A node that answers an attach asks `Engine.answer_attach`."""
free: Final[Callable[[Pointer], None]] = lib.pn_link_free
peer_condition: Final[Callable[[Pointer], Pointer]] = lib.pn_link_remote_condition
"""Why the peer detached it, for `conditions`."""


def new_sender(session: Pointer, name: str) -> Pointer:
    """A link that this side sends on, not attached yet."""
    return lib.pn_sender(session, name.encode())


def new_receiver(session: Pointer, name: str) -> Pointer:
    """A link that this side receives on, not attached yet."""
    return lib.pn_receiver(session, name.encode())


def name(link: Pointer) -> str:
    """As the engine knows it: up to a NUL."""
    return text(lib.pn_link_name(link)) or ""


def grant(link: Pointer, count: int) -> None:
    """Give the peer so much more credit; less if its delivery-count ran far ahead of what it had: the engine
    counts in 32 bits.
    """
    lib.pn_link_flow(link, min(count, _INT_MAX))


# -- settle modes: a sender says how it settles, a receiver how it does (AMQP 2.8.2, 2.8.3)


def presettled(link: Pointer) -> bool:
    """This side, which sends, settles as it sends."""
    return bool(lib.pn_link_snd_settle_mode(link) == lib.PN_SND_SETTLED)


def settles_second(link: Pointer) -> bool:
    """The receiver settles after the sender has."""
    return bool(lib.pn_link_rcv_settle_mode(link) == lib.PN_RCV_SECOND)


def wants_presettled(link: Pointer) -> bool:
    """The peer's attach asks for deliveries that are settled as they are sent."""
    return bool(lib.pn_link_remote_snd_settle_mode(link) == lib.PN_SND_SETTLED)


def set_presettled(link: Pointer, *, settled: bool) -> None:
    """Whether deliveries are settled as they are sent."""
    lib.pn_link_set_snd_settle_mode(link, lib.PN_SND_SETTLED if settled else lib.PN_SND_UNSETTLED)


def answer_settle_modes(link: Pointer, *, sends: bool) -> None:
    """Grant the peer's wishes as far as the node can: what it sends is settled or unsettled, never mixed."""
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
    """Those of this side's attach. Raises WireError for a value that has no AMQP type."""
    write_map(lib.pn_link_properties(link), properties)


def connection_properties(link: Pointer) -> dict[str, object]:
    """The properties in the open of this link's peer."""
    return read_map(lib.pn_connection_remote_properties(lib.pn_session_connection(lib.pn_link_session(link))))


# -- the end


def close(link: Pointer, error: PeerError | None = None) -> None:
    """Detach for good; the pointer stays valid until the peer's detach is answered."""
    if error is not None:
        write_condition(lib.pn_link_condition(link), error)
    lib.pn_link_close(link)


def refuse(link: Pointer, error: PeerError | None) -> None:
    """Answer an attach with a null terminus and then a closing detach that says why (AMQP 2.6.3);

    None: its peer left first.
    """
    lib.pn_terminus_set_type(lib.pn_link_source(link), lib.PN_UNSPECIFIED)
    lib.pn_terminus_set_type(lib.pn_link_target(link), lib.PN_UNSPECIFIED)
    lib.pn_link_open(link)
    close(link, error)
