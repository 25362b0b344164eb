"""What becomes of a delivery once its consumer has spoken: outcomes over a log. Spec: AMQP 3.4; design decision 9.

Nothing ever leaves the log by an outcome. `accepted` and `rejected` are final on this link; `released` and `modified` bring the event
again on the same link, `modified` with delivery-failed counted, unless it is undeliverable here.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

ATTEMPTS_MAX: Final = 0xFFFF
"""Delivery counts beyond this are told as this; the count has 16 bits in the delivery tag."""


class Outcome(Enum):
    """AMQP's terminal delivery states, and a settlement that names none."""

    ACCEPTED = auto()
    REJECTED = auto()
    RELEASED = auto()
    MODIFIED = auto()
    NONE = auto()


@dataclass(frozen=True, slots=True)
class Again:
    """Deliver the same record once more, its header's delivery-count being `delivery_count`."""

    delivery_count: int


def after(outcome: Outcome, *, delivery_count: int, failed: bool, undeliverable_here: bool) -> Again | None:
    """Decide what follows an outcome; None: this link is done with the record."""
    match outcome:
        case Outcome.RELEASED:
            return Again(delivery_count)
        case Outcome.MODIFIED if not undeliverable_here:
            return Again(min(delivery_count + failed, ATTEMPTS_MAX))
        case _:
            return None
