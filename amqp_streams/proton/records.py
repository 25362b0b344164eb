"""What consumers say of a log's records: which record a delivery is stands in its tag (`sending`)."""

from dataclasses import dataclass

from cproton_ffi import ffi, lib

from amqp_streams.proton.outcomes import ACCEPTED, REJECTED, is_over
from amqp_streams.proton.pointers import Pointer
from amqp_streams.proton.sending import RECORD_TAG


@dataclass(frozen=True, slots=True)
class Returned:
    """An outcome other than accepted, with the record it is about.

    `state`: of `outcomes`, or another where the peer named none.
    """

    state: int
    failed: bool
    undeliverable_here: bool
    attempt: int
    partition: int
    number: int


def settle_returned(delivery: Pointer) -> Returned | None:
    """Take note of a consumer's disposition and settle. None: accepted, or nothing final yet."""
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
    """Settle a delivery that was accepted: partition and number of its record.

    None: it was not, and nothing was done.
    """
    if lib.pn_delivery_remote_state(delivery) != ACCEPTED:
        return None
    _, partition, number = _record_of(delivery)
    lib.pn_delivery_settle(delivery)
    return partition, number


def done_with(delivery: Pointer) -> tuple[int, int] | None:
    """Partition and number of a record that was accepted or rejected and that its receiver has not settled.

    None: another.
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
