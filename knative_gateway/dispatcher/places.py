"""[io] Where subscribers begin, and how far they are: between the dispatcher and what keeps it.

Beside its position in each partition (0, 1, …) a subscriber has rows with numbers below zero: -1 is the incarnation of the log that
the positions are of, -2-p a place that it is to go to in partition p. Who owns the partition goes there, now or when it comes to own it: so
a replay reaches all replicas. Laws: a subscriber has a durable place before it is said to be served; a place that is kept is gone on from,
unless its log was made anew; a replay that was asked for outlives who was asked.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from knative_gateway.dispatcher import positions
from knative_gateway.ports import Checkpoints, EventLog, Start, Subscriber
from knative_gateway.resources.objects import moment_ms

INCARNATION: Final = -1
"""Rows with numbers below this are places to go to."""
_ASKED: Final = "="
"""What a place to go to begins with: the earliest is the empty text. Without it: nothing is asked."""
_EARLIEST: Final = "@earliest"
_LATEST: Final = "@latest"

Ours = Callable[[int], bool]
"""Whether a partition is ours."""


async def begin(subscriber: Subscriber, log: str, ours: Ours, *, events: EventLog, checkpoints: Checkpoints) -> Mapping[int, str]:
    """Where it goes on, or begins, in each partition; durable when it returns.

    Replays that were asked for are carried out where the partition is ours.

    Raises:
        UnavailableError: log or store are away.
    """
    uid = subscriber.uid
    kept = await checkpoints.load(uid)
    ends, incarnation = await ends_of(log, events), await events.incarnation(log)
    if not _positions(kept):
        kept = await checkpoints.begin(uid, {**await _start(subscriber, log, ends, events), INCARNATION: incarnation})
    elif INCARNATION not in kept:
        kept = await checkpoints.begin(uid, {INCARNATION: incarnation})
    if incarnation and kept[INCARNATION] not in {"", incarnation}:
        # Another log of that name: all that is in it is to come, and what was asked for was about the other.
        first = dict.fromkeys(ends, positions.BEGINNING)
        kept = {**first, INCARNATION: incarnation}
        await checkpoints.reset(uid, {**kept, **_nothing_asked(first)})
    asked = {partition: position for partition, position in asked_for(kept).items() if ours(partition)}
    if asked:
        await checkpoints.reset(uid, {**asked, **_nothing_asked(asked)})
    return {partition: asked.get(partition, kept.get(partition, positions.BEGINNING)) for partition in ends}


async def ask(uid: str, to: Mapping[int, str], checkpoints: Checkpoints) -> None:
    """Have a subscriber go to these places, wherever it is served."""
    await checkpoints.reset(uid, {_row(partition): _ASKED + position for partition, position in to.items()})


def asked_for(kept: Mapping[int, str]) -> Mapping[int, str]:
    """The places that it is to go to, by partition, of all that is kept of it."""
    return {-2 - row: place[len(_ASKED) :] for row, place in kept.items() if row < INCARNATION and place.startswith(_ASKED)}


def _row(partition: int) -> int:
    return -2 - partition


def _nothing_asked(partitions: Iterable[int]) -> Mapping[int, str]:
    return {_row(partition): "" for partition in partitions}


def _positions(kept: Mapping[int, str]) -> dict[int, str]:
    return {partition: position for partition, position in kept.items() if partition >= 0}


async def _start(subscriber: Subscriber, log: str, ends: Mapping[int, str], events: EventLog) -> Mapping[int, str]:
    place = subscriber.start_at or ""
    if subscriber.start is Start.EARLIEST:
        return dict.fromkeys(ends, positions.BEGINNING)
    if subscriber.start is Start.TIME:
        at_ms = moment_ms(place)
        assert at_ms is not None, place  # as it was admitted
        return await after_time(log, at_ms, events)
    if subscriber.start is Start.OFFSET:
        return {**ends, **after_offsets(place, ends)}
    return ends


async def ends_of(log: str, events: EventLog) -> Mapping[int, str]:
    """The places behind everything that is there now."""
    return {partition: positions.stored(end) for partition, end in (await events.ends(log)).items()}


async def after_time(log: str, at_ms: int, events: EventLog) -> Mapping[int, str]:
    """The places behind which is what was stored at that time or later."""
    found = await events.before(log, max(0, at_ms - 1))
    return {partition: positions.stored(position) for partition, position in found.items()}


def after_offsets(text: str, ends: Mapping[int, str]) -> Mapping[int, str]:
    """The places that PARTITION=OFFSET,… names: the next event is the first after the offset; @earliest and @latest are what they say.

    An offset beyond the end is the end: what is not there yet is not left out.
    """
    return {
        partition: positions.BEGINNING if offset == _EARLIEST else end if offset == _LATEST else min(positions.padded(offset, end), end)
        for partition, offset in positions.given(text).items()
        if (end := ends.get(partition)) is not None
    }
