"""What became of a delivery: the states that two sides give it, and its settlement (AMQP 2.6.12, 3.4)."""

from collections.abc import Callable, Iterable
from typing import Final

from cproton_ffi import lib

from amqp_streams.proton.pointers import Pointer

ACCEPTED: Final[int] = lib.PN_ACCEPTED
REJECTED: Final[int] = lib.PN_REJECTED
RELEASED: Final[int] = lib.PN_RELEASED
MODIFIED: Final[int] = lib.PN_MODIFIED
FINAL: Final = frozenset({ACCEPTED, REJECTED, RELEASED, MODIFIED})
_NOT_FINAL: Final = (0, lib.PN_RECEIVED)

peer_state: Final[Callable[[Pointer], int]] = lib.pn_delivery_remote_state
"""The state that the peer gave; 0: none."""
settled_by_peer: Final[Callable[[Pointer], bool]] = lib.pn_delivery_settled
settle: Final[Callable[[Pointer], None]] = lib.pn_delivery_settle
"""The pointer is dead when the other side has settled, too."""


def answered(delivery: Pointer) -> bool:
    """This side has given it a state."""
    return bool(lib.pn_delivery_local_state(delivery) != 0)


def is_over(delivery: Pointer, state: int) -> bool:
    """The peer, whose state this is, says nothing more of the delivery."""
    return state not in _NOT_FINAL or settled_by_peer(delivery)


def peer_condition(delivery: Pointer) -> Pointer:
    """Why the peer rejected it, for `conditions`."""
    return lib.pn_disposition_condition(lib.pn_delivery_remote(delivery))


def settle_all(deliveries: Iterable[Pointer]) -> None:
    """Settle deliveries, whatever their outcome."""
    settle = lib.pn_delivery_settle
    for delivery in deliveries:
        settle(delivery)


def give(deliveries: Iterable[Pointer], state: int) -> None:
    """Give deliveries an outcome and settle them; the engine tells neighbours in one disposition.

    A modified one counts as failed.
    """
    update, settle, fails = lib.pn_delivery_update, lib.pn_delivery_settle, state == MODIFIED
    for delivery in deliveries:
        if fails:
            lib.pn_disposition_set_failed(lib.pn_delivery_local(delivery), True)
        update(delivery, state)
        settle(delivery)


def accept_unsettled(deliveries: Iterable[Pointer]) -> None:
    """Accept; the sender settles first (rcv-settle-mode second), if it has not done so already."""
    for delivery in deliveries:
        lib.pn_delivery_update(delivery, ACCEPTED)
        if lib.pn_delivery_settled(delivery):
            lib.pn_delivery_settle(delivery)


def reject(delivery: Pointer, condition: str, description: str, *, settle: bool = True) -> None:
    """Reject one message, with the reason. Without `settle` the sender settles first."""
    error = lib.pn_disposition_condition(lib.pn_delivery_local(delivery))
    lib.pn_condition_set_name(error, condition.encode())
    lib.pn_condition_set_description(error, description.encode())
    lib.pn_delivery_update(delivery, REJECTED)
    if settle:
        lib.pn_delivery_settle(delivery)


def modify_failed(delivery: Pointer, *, settle: bool = True) -> None:
    """Report a failure of the node: the sender may retry. Without `settle` the sender settles first."""
    lib.pn_disposition_set_failed(lib.pn_delivery_local(delivery), True)
    lib.pn_delivery_update(delivery, MODIFIED)
    if settle:
        lib.pn_delivery_settle(delivery)
