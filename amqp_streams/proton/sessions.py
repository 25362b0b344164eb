"""Sessions: window, begin and end (AMQP 2.5). `Engine.begin` creates one."""

from collections.abc import Callable
from typing import Final

from cproton_ffi import lib

from amqp_streams.proton.pointers import Pointer

outgoing_bytes: Final[Callable[[Pointer], int]] = lib.pn_session_outgoing_bytes
"""How many bytes Proton holds for sending on this session."""
incoming_bytes: Final[Callable[[Pointer], int]] = lib.pn_session_incoming_bytes
"""How many bytes have arrived on this session and were not read yet."""
answer_begin: Final[Callable[[Pointer], None]] = lib.pn_session_open
close: Final[Callable[[Pointer], None]] = lib.pn_session_close
free: Final[Callable[[Pointer], None]] = lib.pn_session_free
peer_condition: Final[Callable[[Pointer], Pointer]] = lib.pn_session_remote_condition
"""The error with which the peer ended the session, for `conditions`."""


def begun_by_peer(session: Pointer) -> bool:
    """Whether the peer began this session and has no answer yet."""
    return bool(lib.pn_session_state(session) & lib.PN_LOCAL_UNINIT)
