"""Outcomes of deliveries that carry records. The delivery tag identifies the record (`sending`)."""

from dataclasses import dataclass

from cproton_ffi import ffi, lib

from amqp_streams.proton.outcomes import ACCEPTED, REJECTED, is_over
from amqp_streams.proton.pointers import Pointer
from amqp_streams.proton.sending import RECORD_TAG


@dataclass(frozen=True, slots=True)
class Returned:
    """A final outcome other than accepted, and the record that it concerns.

    `state`: one of `outcomes`, or another number if the peer settled without an outcome.
    """

    state: int
    failed: bool
    undeliverable_here: bool
    attempt: int
    partition: int
    number: int


def settle_returned(delivery: Pointer) -> Returned | None:
    """Settle a delivery that has a final outcome. None: it was accepted, or has no final outcome yet."""
    state = lib.pn_delivery_remote_state(delivery)
    if state == ACCEPTED:
        lib.pn_delivery_settle(delivery)
        return None
    if not is_over(delivery, state):
        return None
    attempt, partition, number = _record_of(delivery)
    remote = lib.pn_delivery_remote(delivery)
    returned = Returned(
        state=state,
        failed=bool(lib.pn_disposition_is_failed(remote)),
        undeliverable_here=bool(lib.pn_disposition_is_undeliverable(remote)),
        attempt=attempt,
        partition=partition,
        number=number,
    )
    lib.pn_delivery_settle(delivery)
    return returned


def settle_accepted(delivery: Pointer) -> tuple[int, int] | None:
    """Settle a delivery that was accepted.

    Returns partition and record number. None: it was not accepted, and nothing was done.
    """
    if lib.pn_delivery_remote_state(delivery) != ACCEPTED:
        return None
    _, partition, number = _record_of(delivery)
    lib.pn_delivery_settle(delivery)
    return partition, number


def done_with(delivery: Pointer) -> tuple[int, int] | None:
    """Return partition and number of a record that the receiver accepted or rejected and did not settle.

    Otherwise None.
    """
    if lib.pn_delivery_remote_state(delivery) not in (ACCEPTED, REJECTED) or lib.pn_delivery_settled(
        delivery
    ):
        return None
    _, partition, number = _record_of(delivery)
    return partition, number


def _record_of(delivery: Pointer) -> tuple[int, int, int]:
    tag = lib.pn_delivery_tag(delivery)
    return RECORD_TAG.unpack_from(ffi.buffer(tag.start, tag.size))
