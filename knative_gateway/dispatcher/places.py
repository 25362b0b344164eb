"""[io] Where subscribers begin, and how far they are: between the dispatcher and what keeps it.

Beside its position in each partition (0, 1, …) a subscriber has rows with numbers below zero: -1 is the
incarnation of the log that the positions are of, -2-p a place that it is to go to in partition p. Who owns
the partition goes there, now or when it comes to own it: so a replay reaches all replicas. Laws: a subscriber
has a durable place before it is said to be served; a place that is kept is gone on from, unless its log was
made anew; a replay that was asked for outlives who was asked.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from knative_gateway.dispatcher import positions
from knative_gateway.dispatcher.positions import Lost, lost
from knative_gateway.ports import Checkpoints, EventLog, Extents, Range, Start, Subscriber
from knative_gateway.resources.objects import moment_ms

INCARNATION: Final = -1
"""Rows with numbers below this are places to go to."""
_ASKED: Final = "="
"""What a place to go to begins with: the earliest is the empty text. Without it: nothing is asked."""
_EARLIEST: Final = "@earliest"

Ours = Callable[[str, int], bool]
"""Whether a subscriber, by its uid, is to begin in a partition here."""


class Begin(NamedTuple):
    """Where a subscriber begins in a partition. `done`: what it has completed behind the position.

    `lost`: events that retention had removed before they were delivered, from the first to the last offset;
    None: none.
    """

    position: str
    done: Sequence[Range] = ()
    lost: Lost | None = None


async def begin(
    subscribers: Sequence[Subscriber],
    extents: Extents,
    log: str,
    ours: Ours,
    *,
    events: EventLog,
    checkpoints: Checkpoints,
    anew: bool = False,
) -> Mapping[str, Mapping[int, Begin]]:
    """Where each of them goes on, or begins, in each partition; durable when it returns. By uid; for all of a
    route at once.

    Replays that were asked for are carried out where the partition is ours. `anew`: the log was made again
    while it was served, so that positions that were kept since may be of the former log: our partitions begin
    at their first event.

    Raises:
        UnavailableError: log or store are away.
    """
    uids = [subscriber.uid for subscriber in subscribers]
    kept = await checkpoints.load(uids)
    new: dict[str, Mapping[int, str]] = {}
    for subscriber in subscribers:
        known = kept.get(subscriber.uid, {})
        if not _positions(known):
            new[subscriber.uid] = {**await _start(subscriber, log, extents, events), INCARNATION: extents.incarnation}
        elif INCARNATION not in known:
            new[subscriber.uid] = {INCARNATION: extents.incarnation}
    if new:
        kept = {**kept, **await checkpoints.begin(new)}
    if anew:
        for uid in uids:
            await checkpoints.reset(uid, {partition: first for partition, first in before_first(extents).items() if ours(uid, partition)})
        kept = await checkpoints.load(uids)
    done = await checkpoints.done(uids)
    return {uid: await _begun(uid, kept[uid], extents, ours, done=done, checkpoints=checkpoints) for uid in uids}


async def _begun(
    uid: str,
    kept: Mapping[int, str],
    extents: Extents,
    ours: Ours,
    *,
    done: Mapping[tuple[str, int], Sequence[Range]],
    checkpoints: Checkpoints,
) -> Mapping[int, Begin]:
    first = before_first(extents)
    if extents.incarnation and kept[INCARNATION] not in {"", extents.incarnation}:
        # Another log of that name: all that is in it is to come, and what was asked for was about the other.
        await checkpoints.reset(uid, {**first, INCARNATION: extents.incarnation, **_nothing_asked(first)})
        return {partition: Begin(position) for partition, position in first.items()}
    asked = {
        partition: max(position, first.get(partition, position)) for partition, position in asked_for(kept).items() if ours(uid, partition)
    }
    if asked:
        await checkpoints.reset(uid, {**asked, **_nothing_asked(asked)})
    begun: dict[int, Begin] = {}
    for partition, oldest in first.items():
        if partition in asked:
            begun[partition] = Begin(asked[partition])
            continue
        position = kept.get(partition, oldest)
        begun[partition] = Begin(position, done.get((uid, partition), ()), lost(position, oldest))
    return begun


def before_first(extents: Extents) -> Mapping[int, str]:
    """The positions before everything that is there now."""
    return {partition: positions.BEGINNING if offset is None else positions.previous(offset) for partition, offset in extents.first.items()}


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


async def _start(subscriber: Subscriber, log: str, extents: Extents, events: EventLog) -> Mapping[int, str]:
    place = subscriber.start_at or ""
    ends = {partition: positions.stored(end) for partition, end in extents.last.items()}
    if subscriber.start is Start.EARLIEST:
        return before_first(extents)
    if subscriber.start is Start.TIME:
        at_ms = moment_ms(place)
        assert at_ms is not None, place  # as it was admitted
        return await after_time(log, at_ms, events)
    if subscriber.start is Start.OFFSET:
        return {**ends, **{p: max(position, before_first(extents)[p]) for p, position in after_offsets(place, ends).items()}}
    return ends


async def ends_of(log: str, events: EventLog) -> Mapping[int, str]:
    """The places behind everything that is there now."""
    return {partition: positions.stored(end) for partition, end in (await events.ends(log)).items()}


async def after_time(log: str, at_ms: int, events: EventLog) -> Mapping[int, str]:
    """The places behind which is what was stored at that time or later."""
    found = await events.before(log, max(0, at_ms - 1))
    return {partition: positions.stored(position) for partition, position in found.items()}


def after_offsets(text: str, ends: Mapping[int, str]) -> Mapping[int, str]:
    """The places that PARTITION=OFFSET,… names: the next event is the first after the offset; @earliest and
    @latest are what they say.

    An offset beyond the end is the end: what is not there yet is not left out. So is one that is not a
    number: it was admitted once, and no node would read from there.
    """
    return {
        partition: positions.BEGINNING if offset == _EARLIEST else min(positions.padded(offset, end), end) if offset.isdecimal() else end
        for partition, offset in positions.given(text).items()
        if (end := ends.get(partition)) is not None
    }
