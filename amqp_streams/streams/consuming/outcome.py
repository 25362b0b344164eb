"""What follows the outcome of a delivery. Spec: AMQP 3.4; design decision 9.

An outcome never removes an event from the log. `accepted` and `rejected` are final on this link. After
`released` and `modified` the event is sent again on the same link; `modified` can count a failure, or end it
as undeliverable here.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

ATTEMPTS_MAX: Final = 0xFFFF
"""The highest delivery-count that is sent: the count has 16 bits in the delivery tag."""


class Outcome(Enum):
    """AMQP's terminal delivery states, and a settlement without a state."""

    ACCEPTED = auto()
    REJECTED = auto()
    RELEASED = auto()
    MODIFIED = auto()
    NONE = auto()


@dataclass(frozen=True, slots=True)
class Again:
    """Deliver the same record again with this `delivery_count` in its header."""

    delivery_count: int


def after(outcome: Outcome, *, delivery_count: int, failed: bool, undeliverable_here: bool) -> Again | None:
    """What follows an outcome; None: the record is final on this link."""
    match outcome:
        case Outcome.RELEASED:
            return Again(delivery_count)
        case Outcome.MODIFIED if not undeliverable_here:
            return Again(min(delivery_count + failed, ATTEMPTS_MAX))
        case _:
            return None
