"""Proton's events of a connection, in order: take one with `peek`, process it, remove it with `pop`.

These names are the C functions themselves, without a Python function in between: a loop over deliveries calls
five of them for each delivery.
"""

from collections.abc import Callable
from typing import Final

from cproton_ffi import lib

from amqp_streams.proton import compiled
from amqp_streams.proton.pointers import Pointer

CONNECTION_OPEN: Final[int] = lib.PN_CONNECTION_REMOTE_OPEN
CONNECTION_CLOSE: Final[int] = lib.PN_CONNECTION_REMOTE_CLOSE
SESSION_BEGIN: Final[int] = lib.PN_SESSION_REMOTE_OPEN
SESSION_END: Final[int] = lib.PN_SESSION_REMOTE_CLOSE
LINK_ATTACH: Final[int] = lib.PN_LINK_REMOTE_OPEN
LINK_FLOW: Final[int] = lib.PN_LINK_FLOW
LINK_DETACH: Final[int] = lib.PN_LINK_REMOTE_DETACH
LINK_CLOSE: Final[int] = lib.PN_LINK_REMOTE_CLOSE
"""A detach with `closed`: the client ends the link for good."""
DELIVERY: Final[int] = lib.PN_DELIVERY
"""A transfer or a disposition."""
TRANSPORT_ERROR: Final[int] = lib.PN_TRANSPORT_ERROR
TRANSPORT_CLOSED: Final[int] = lib.PN_TRANSPORT_CLOSED

peek: Final[Callable[[Pointer], Pointer]] = lib.pn_collector_peek
"""Returns the next event of a collector; false if no event is waiting."""
pop: Final[Callable[[Pointer], bool]] = lib.pn_collector_pop
kind: Final[Callable[[Pointer], int]] = lib.pn_event_type
session: Final[Callable[[Pointer], Pointer]] = lib.pn_event_session
link: Final[Callable[[Pointer], Pointer]] = lib.pn_event_link
delivery: Final[Callable[[Pointer], Pointer]] = lib.pn_event_delivery


def pass_deliveries_in_python(collector: Pointer) -> None:
    """Remove the delivery events up to the first other event."""
    look, remove, kind_of, is_delivery = peek, pop, kind, DELIVERY
    while (event := look(collector)) and kind_of(event) == is_delivery:
        remove(collector)


def pass_deliveries_compiled(collector: Pointer) -> None:
    """`pass_deliveries_in_python` as a compiled loop."""
    compiled.loops.pass_deliveries(compiled.address(collector))


pass_deliveries = pass_deliveries_in_python if compiled.loops is None else pass_deliveries_compiled


def settle_accepted_in_python(collector: Pointer) -> int:
    """Settle the deliveries that the peer accepted, and remove their events, up to the first event that is
    something else. Returns how many.
    """
    look, remove, kind_of, is_delivery = peek, pop, kind, DELIVERY
    delivery_of, peer_state, settle = delivery, lib.pn_delivery_remote_state, lib.pn_delivery_settle
    accepted, count = lib.PN_ACCEPTED, 0
    while (event := look(collector)) and kind_of(event) == is_delivery:
        settled = delivery_of(event)
        if peer_state(settled) != accepted:
            break
        settle(settled)
        remove(collector)
        count += 1
    return count


def settle_accepted_compiled(collector: Pointer) -> int:
    """`settle_accepted_in_python` as a compiled loop."""
    count: int = compiled.loops.settle_accepted(compiled.address(collector))
    return count


settle_accepted = settle_accepted_in_python if compiled.loops is None else settle_accepted_compiled
