"""Where an event is for one subscriber, as far as this process or the store knows. Pure.

The gateway keeps a position for each subscriber and partition, the latest failures, and the latest
deliveries. An event that the position has passed, and that is in none of these, was delivered, or its
filters did not match it at that time: which of both is not recorded.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from knative_gateway.delivery import End
from knative_gateway.delivery.recent import Delivered, Recent, Reply
from knative_gateway.dispatcher import positions
from knative_gateway.dispatcher.subscribers.delivering import SubscriberDispatcher
from knative_gateway.ports import Failure, Range

SKIPPED: Final = "skipped"


class State(StrEnum):
    """What is known of an event that a subscriber gets."""

    NOT_REACHED = "not reached"
    """It is in the log. The subscriber has not read it yet."""
    NOT_COMPLETED = "not completed"
    """Another process delivers the partition, and has not stored that the event is completed."""
    WAITING = "waiting"
    """It was read. Its delivery has not begun."""
    IN_FLIGHT = "in flight"
    RETRYING = "retrying"
    """It is in flight, and has failed before."""
    REDRIVING = "delivered again"
    """A redrive delivers it again now."""
    DELIVERED = "delivered"
    DEAD_LETTERED = "dead-lettered"
    DROPPED = "dropped"
    SKIPPED = "skipped"
    COMPLETED = "completed"
    """The position has passed it, and nothing else is recorded."""
    NOT_SERVED = "not served"
    """The subscriber is not ready."""


_ENDS: Final = {End.DEAD_LETTERED: State.DEAD_LETTERED, End.DROPPED: State.DROPPED, SKIPPED: State.SKIPPED}


@dataclass(frozen=True, slots=True)
class Standing:
    """`position`: the offset up to which the subscriber has completed all events of the partition.
    `is_ours`: this process delivers the partition; otherwise another one does, and only what is stored is
    known. `attempts`: the recorded failures of the event, the latest first.
    """

    state: State
    position: str
    is_ours: bool
    attempts: Sequence[Failure] = ()
    delivered: Delivered | None = None
    reply: Reply | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """What the store has of a subscriber in one partition: its position, the completed ranges above it, and
    its history, the latest failure first.
    """

    position: str
    done: Sequence[Range]
    history: Sequence[Failure]


def standing(
    dispatcher: SubscriberDispatcher | None, kept: Kept, partition: int, offset: str, event_id: str
) -> Standing:
    """Return where an event that the filters match is for a subscriber. `dispatcher`: None if this process
    does not serve the subscriber.
    """
    held: Sequence[Failure] = () if dispatcher is None else dispatcher.history.held
    attempts = [
        each
        for each in (*held, *kept.history)
        # The log may have been recreated: then another event had this offset.
        if (each.partition, each.offset) == (partition, offset) and each.event_id in {"", event_id}
    ]
    ours = None if dispatcher is None else dispatcher.partitions.get(partition)
    recent = Recent() if dispatcher is None else dispatcher.history.recent
    delivered, reply = recent.found(partition, offset), recent.reply_to(partition, offset)
    position = kept.position if ours is None else ours.cursor.reached
    if dispatcher is None:
        state = State.NOT_SERVED
    elif dispatcher.redrives.has(partition, offset):
        state = State.REDRIVING
    elif ours is not None and ours.holds(offset):
        begun = ours.window.has_started(offset)
        state = (State.RETRYING if _is_open(attempts) else State.IN_FLIGHT) if begun else State.WAITING
    elif (ours is not None and ours.cursor.has_passed(offset)) or _is_done(kept, offset):
        state = _ended(attempts, delivered)
    elif ours is None:
        state = State.RETRYING if _is_open(attempts) else State.NOT_COMPLETED
    else:
        state = State.NOT_REACHED
    return Standing(state, position, ours is not None, _joined(attempts), delivered, reply)


def ahead(position: str, offset: str) -> int:
    """Return how many events are between a position and an event: matching or not, and not completed."""
    return max(0, (positions.distance(position, offset) or 0) - 1)


def _joined(attempts: Sequence[Failure]) -> Sequence[Failure]:
    """Return the failures, with the last attempt and the end of a delivery (two records) joined to one."""
    joined: list[Failure] = []
    for each in attempts:
        after = joined[-1] if joined else None
        if after is not None and after.end and not each.end and _attempt(each) == _attempt(after):
            joined[-1] = replace(after, at_ms=each.at_ms)
        else:
            joined.append(each)
    return joined


def _attempt(failure: Failure) -> tuple[object, ...]:
    return failure.attempt, failure.code, failure.reason


def _is_open(attempts: Sequence[Failure]) -> bool:
    return bool(attempts) and not attempts[0].end


def _is_done(kept: Kept, offset: str) -> bool:
    return offset <= kept.position or any(after < offset <= last for after, last in kept.done)


def _ended(attempts: Sequence[Failure], delivered: Delivered | None) -> State:
    latest = attempts[0] if attempts else None
    if latest is None:
        return State.COMPLETED if delivered is None else State.DELIVERED
    # A redrive or a replay may have delivered it after the failure. Without a record of an end, the attempts
    # went on until one succeeded.
    if not latest.end or (delivered is not None and delivered.at_ms > latest.at_ms):
        return State.DELIVERED
    return _ENDS.get(latest.end, State.COMPLETED)
