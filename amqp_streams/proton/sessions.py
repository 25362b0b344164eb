"""One session: its window, and the ends of its life (AMQP 2.5). `Engine.begin` makes one."""

from collections.abc import Callable
from typing import Final

from cproton_ffi import lib

from amqp_streams.proton.pointers import Pointer

outgoing_bytes: Final[Callable[[Pointer], int]] = lib.pn_session_outgoing_bytes
"""Handed to the engine on this session and not taken out of it yet."""
incoming_bytes: Final[Callable[[Pointer], int]] = lib.pn_session_incoming_bytes
"""Come on this session and not read yet."""
answer_begin: Final[Callable[[Pointer], None]] = lib.pn_session_open
close: Final[Callable[[Pointer], None]] = lib.pn_session_close
free: Final[Callable[[Pointer], None]] = lib.pn_session_free
peer_condition: Final[Callable[[Pointer], Pointer]] = lib.pn_session_remote_condition
"""Why the peer ended it, for `conditions`."""


def begun_by_peer(session: Pointer) -> bool:
    """The peer began it, and has no answer yet."""
    return bool(lib.pn_session_state(session) & lib.PN_LOCAL_UNINIT)
