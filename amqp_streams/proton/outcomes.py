"""Outcomes and settlement of deliveries (AMQP 2.6.12, 3.4)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from cproton_ffi import lib

from amqp_streams.errors import PeerError
from amqp_streams.proton import compiled
from amqp_streams.proton.conditions import write_condition
from amqp_streams.proton.pointers import Pointer

ACCEPTED: Final[int] = lib.PN_ACCEPTED
REJECTED: Final[int] = lib.PN_REJECTED
RELEASED: Final[int] = lib.PN_RELEASED
MODIFIED: Final[int] = lib.PN_MODIFIED
FINAL: Final = frozenset({ACCEPTED, REJECTED, RELEASED, MODIFIED})
_NOT_FINAL: Final = (0, lib.PN_RECEIVED)

peer_state: Final[Callable[[Pointer], int]] = lib.pn_delivery_remote_state
"""The state that the peer reported; 0: none."""
settled_by_peer: Final[Callable[[Pointer], bool]] = lib.pn_delivery_settled
settle: Final[Callable[[Pointer], None]] = lib.pn_delivery_settle
"""Settle. The pointer becomes invalid after both sides have settled."""


def answered(delivery: Pointer) -> bool:
    """Whether this side has set a state."""
    return bool(lib.pn_delivery_local_state(delivery) != 0)


def is_over(delivery: Pointer, state: int) -> bool:
    """Whether the peer will not change this delivery any more.

    Its `state` is an outcome, or it has settled.
    """
    return state not in _NOT_FINAL or settled_by_peer(delivery)


def peer_condition(delivery: Pointer) -> Pointer:
    """The error of a rejected delivery, for `conditions`."""
    return lib.pn_disposition_condition(lib.pn_delivery_remote(delivery))


def settle_all(deliveries: Iterable[Pointer]) -> None:
    """Settle deliveries, whatever their outcome."""
    settle = lib.pn_delivery_settle
    for delivery in deliveries:
        settle(delivery)


def give(deliveries: Iterable[Pointer], state: int) -> None:
    """Set the outcome of deliveries and settle them.

    Proton combines consecutive deliveries in one disposition frame. `MODIFIED` is sent with delivery-failed.
    """
    if isinstance(deliveries, compiled.Deliveries) and state != MODIFIED:
        compiled.loops.give(deliveries.addresses, state)
        return
    update, settle, fails = lib.pn_delivery_update, lib.pn_delivery_settle, state == MODIFIED
    for delivery in deliveries:
        if fails:
            lib.pn_disposition_set_failed(lib.pn_delivery_local(delivery), True)
        update(delivery, state)
        settle(delivery)


def accept_unsettled(deliveries: Iterable[Pointer]) -> None:
    """Accept without settling: the sender settles first (rcv-settle-mode second).

    Deliveries that it has already settled are settled.
    """
    for delivery in deliveries:
        lib.pn_delivery_update(delivery, ACCEPTED)
        if lib.pn_delivery_settled(delivery):
            lib.pn_delivery_settle(delivery)


def release(delivery: Pointer, *, settle: bool = True) -> None:
    """Release a delivery: it was not processed. `settle=False`: the sender settles first."""
    lib.pn_delivery_update(delivery, RELEASED)
    if settle:
        lib.pn_delivery_settle(delivery)


def reject(
    delivery: Pointer,
    condition: str,
    description: str,
    info: Mapping[str, str | int] | None = None,
    *,
    settle: bool = True,
) -> None:
    """Reject a delivery with an error. `settle=False`: the sender settles first."""
    error = PeerError(condition, description, info)
    write_condition(lib.pn_disposition_condition(lib.pn_delivery_local(delivery)), error)
    lib.pn_delivery_update(delivery, REJECTED)
    if settle:
        lib.pn_delivery_settle(delivery)


def modify_failed(delivery: Pointer, *, settle: bool = True) -> None:
    """Report that the node failed, so that the sender may retry (`modified` with delivery-failed).

    `settle=False`: the sender settles first.
    """
    lib.pn_disposition_set_failed(lib.pn_delivery_local(delivery), True)
    lib.pn_delivery_update(delivery, MODIFIED)
    if settle:
        lib.pn_delivery_settle(delivery)
