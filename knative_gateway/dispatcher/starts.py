"""[io] Where subscribers start in each partition, and the stored cursors of new subscribers.

A subscriber has a stored cursor before it is reported as served. It continues from its stored cursor, unless
its log was recreated. The owner of each partition carries out a requested replay, even if the replica that
received the request has ended.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from knative_gateway.dispatcher import positions
from knative_gateway.dispatcher.positions import Lost, lost
from knative_gateway.ports import CursorStore, EventLog, Extents, Range, Start, StoredCursor, Subscriber
from knative_gateway.resources.objects import moment_ms

_EARLIEST: Final = "@earliest"

Ours = Callable[[str, int], bool]
"""Returns whether a subscriber, given by its uid, shall begin in a partition in this gateway."""


class Begin(NamedTuple):
    """Where a subscriber begins in a partition. `done`: completed ranges above `position`. `lost`: the events
    after `position` that retention has removed; None: no events.
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
    """Return where each subscriber begins or continues in each partition, by uid. The result is already
    stored.

    One call handles all subscribers of a route in few transactions, and carries out pending replays in the
    partitions of this gateway. `anew`: the log was recreated while it was served, so stored positions may
    belong to the former log. The partitions of this gateway then begin at their first event.

    Raises:
        UnavailableError: the log or the store is not available.
    """
    uids = [subscriber.uid for subscriber in subscribers]
    stored = await store.load(uids)
    new: dict[str, StoredCursor] = {}
    for subscriber in subscribers:
        known = stored.get(subscriber.uid, StoredCursor())
        if not known.positions:
            start = await _start(subscriber, log, extents, events)
            new[subscriber.uid] = StoredCursor(start, extents.incarnation)
        # A cursor of an early version has no incarnation. It is taken to belong to the current log.
        elif known.incarnation is None:
            new[subscriber.uid] = StoredCursor(incarnation=extents.incarnation)
    if new:
        # The result of `begin` counts, not `new`: another replica may have stored the cursor first.
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
        # Another log with the same name: deliver all its events. Replays were requested for the former log.
        await store.restart(uid, first, extents.incarnation)
        return {partition: Begin(position) for partition, position in first.items()}
    replayed = {
        # A replay to an event that retention has removed begins at the oldest event. It is not reported as a
        # loss, because the user chose the position.
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
        # A partition without a position was added to the log later: its first event is new to the subscriber.
        position = stored.positions.get(partition, oldest)
        begun[partition] = Begin(position, done.get((uid, partition), ()), lost(position, oldest))
    return begun


def before_first(extents: Extents) -> Mapping[int, str]:
    """Return the position before the first event of each partition."""
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
        assert at_ms is not None, start_at  # admission refuses other values
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
    """Return the position after the last event of each partition."""
    return {partition: positions.stored(end) for partition, end in (await events.ends(log)).items()}


async def after_time(log: str, at_ms: int, events: EventLog) -> Mapping[int, str]:
    """Return the positions before the first events that were stored at `at_ms` or later."""
    before = await events.before(log, max(0, at_ms - 1))
    return {partition: positions.stored(position) for partition, position in before.items()}


def after_offsets(text: str, ends: Mapping[int, str]) -> Mapping[int, str]:
    """Return the positions of `PARTITION=OFFSET,…`, where OFFSET may be @earliest or @latest.

    The next event is the first one after the offset. An offset beyond the end becomes the end, so that no
    future event is skipped. A text that is not a number becomes the end, too: an early version admitted such
    texts, and a node cannot read from them.
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
