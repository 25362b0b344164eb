"""[io] Where subscribers start in each partition, and what is stored of that.

Laws: a subscriber has a stored cursor before it is reported as served; it continues from a stored cursor,
unless its log was recreated; a replay that was asked for is carried out by the owner of each partition, also
if the replica that was asked has ended.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from knative_gateway.dispatcher import positions
from knative_gateway.dispatcher.positions import Lost, lost
from knative_gateway.ports import CursorStore, EventLog, Extents, Range, Start, StoredCursor, Subscriber
from knative_gateway.resources.objects import moment_ms

_EARLIEST: Final = "@earliest"

Ours = Callable[[str, int], bool]
"""Whether a subscriber, by its uid, is to begin in a partition here."""


class Begin(NamedTuple):
    """Where a subscriber begins in a partition. `done`: ranges above the position that are completed.

    `lost`: the events after the position that retention had removed; None: none.
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
    store: CursorStore,
    anew: bool = False,
) -> Mapping[str, Mapping[int, Begin]]:
    """Where each subscriber begins or continues in each partition, by uid; stored when it returns.

    One call for all subscribers of a route, which takes few transactions. Replays of our partitions are
    carried out. `anew`: the log was recreated while it was served, so that stored positions may be of the
    former log: our partitions begin at their first event.

    Raises:
        UnavailableError: log or store are away.
    """
    uids = [subscriber.uid for subscriber in subscribers]
    stored = await store.load(uids)
    new: dict[str, StoredCursor] = {}
    for subscriber in subscribers:
        known = stored.get(subscriber.uid, StoredCursor())
        if not known.positions:
            start = await _start(subscriber, log, extents, events)
            new[subscriber.uid] = StoredCursor(start, extents.incarnation)
        elif known.incarnation is None:
            new[subscriber.uid] = StoredCursor(incarnation=extents.incarnation)
    if new:
        stored = {**stored, **await store.begin(new)}
    if anew:
        first = before_first(extents)
        for uid in uids:
            await store.reset(
                uid, {number: position for number, position in first.items() if ours(uid, number)}
            )
        stored = await store.load(uids)
    done = await store.done(uids)
    return {uid: await _begun(uid, stored[uid], extents, ours, done=done, store=store) for uid in uids}


async def _begun(
    uid: str,
    stored: StoredCursor,
    extents: Extents,
    ours: Ours,
    *,
    done: Mapping[tuple[str, int], Sequence[Range]],
    store: CursorStore,
) -> Mapping[int, Begin]:
    first = before_first(extents)
    if extents.incarnation and stored.incarnation not in {None, "", extents.incarnation}:
        # Another log of that name: all of its events are to be delivered, and replays were of the former log.
        await store.restart(uid, first, extents.incarnation)
        return {partition: Begin(position) for partition, position in first.items()}
    replayed = {
        partition: max(position, first.get(partition, position))
        for partition, position in stored.replays.items()
        if ours(uid, partition)
    }
    if replayed:
        await store.replay(uid, replayed)
    begun: dict[int, Begin] = {}
    for partition, oldest in first.items():
        if partition in replayed:
            begun[partition] = Begin(replayed[partition])
            continue
        position = stored.positions.get(partition, oldest)
        begun[partition] = Begin(position, done.get((uid, partition), ()), lost(position, oldest))
    return begun


def before_first(extents: Extents) -> Mapping[int, str]:
    """The position before the first event of each partition."""
    return {
        partition: positions.BEGINNING if offset is None else positions.previous(offset)
        for partition, offset in extents.first.items()
    }


async def _start(subscriber: Subscriber, log: str, extents: Extents, events: EventLog) -> Mapping[int, str]:
    start_at = subscriber.start_at or ""
    ends = {partition: positions.stored(end) for partition, end in extents.last.items()}
    if subscriber.start is Start.EARLIEST:
        return before_first(extents)
    if subscriber.start is Start.TIME:
        at_ms = moment_ms(start_at)
        assert at_ms is not None, start_at  # admission refuses anything else
        return await after_time(log, at_ms, events)
    if subscriber.start is Start.OFFSET:
        first = before_first(extents)
        given = after_offsets(start_at, ends)
        return {
            **ends,
            **{partition: max(position, first[partition]) for partition, position in given.items()},
        }
    return ends


async def ends_of(log: str, events: EventLog) -> Mapping[int, str]:
    """The position after the last event of each partition."""
    return {partition: positions.stored(end) for partition, end in (await events.ends(log)).items()}


async def after_time(log: str, at_ms: int, events: EventLog) -> Mapping[int, str]:
    """The positions before the first events that were stored at that time or later."""
    before = await events.before(log, max(0, at_ms - 1))
    return {partition: positions.stored(position) for partition, position in before.items()}


def after_offsets(text: str, ends: Mapping[int, str]) -> Mapping[int, str]:
    """The positions of PARTITION=OFFSET,…: the next event is the first after the offset. Also @earliest and
    @latest.

    An offset beyond the end is the end, so that no future event is skipped. Anything else that is not a
    number is the end, too: an early build admitted such texts, and no node can read from there.
    """
    found: dict[int, str] = {}
    for partition, offset in positions.given(text).items():
        end = ends.get(partition)
        if end is None:
            continue
        if offset == _EARLIEST:
            found[partition] = positions.BEGINNING
        else:
            found[partition] = min(positions.padded(offset, end), end) if offset.isdecimal() else end
    return found
