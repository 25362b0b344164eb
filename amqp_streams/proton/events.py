"""Proton's events of a connection, in order: take one with `peek`, process it, remove it with `pop`.

These names are the C functions themselves, without a Python function in between: a loop over deliveries calls
five of them for each delivery.
"""

from collections.abc import Callable
from typing import Final

from cproton_ffi import lib

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
