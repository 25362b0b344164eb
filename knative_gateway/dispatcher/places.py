"""[io] Where subscribers begin, and how far they are: between the dispatcher and what keeps it.

Laws: a subscriber has a durable place before it is said to be served; a place that is kept is gone on from, unless its log was made anew.
"""

from collections.abc import Mapping
from typing import Final

from knative_gateway.dispatcher import positions
from knative_gateway.ports import Checkpoints, EventLog, Start, Subscriber
from knative_gateway.resources.objects import moment_ms

_EARLIEST: Final = "@earliest"
_LATEST: Final = "@latest"


async def begin(subscriber: Subscriber, log: str, *, events: EventLog, checkpoints: Checkpoints) -> Mapping[int, str]:
    """Where it goes on, or begins, in each partition; durable when it returns.

    Raises:
        UnavailableError: log or store are away.
    """
    kept = await checkpoints.load(subscriber.uid)
    ends = {partition: positions.stored(end) for partition, end in (await events.ends(log)).items()}
    if kept and not any(kept.get(partition, positions.BEGINNING) > end for partition, end in ends.items()):
        return {partition: kept.get(partition, positions.BEGINNING) for partition in ends}
    if kept:
        # Beyond the end of the log: it is another log of that name, or retention left nothing. All that is in it is to come.
        first = dict.fromkeys(ends, positions.BEGINNING)
        await checkpoints.reset(subscriber.uid, first)
        return first
    start = await _start(subscriber, log, ends, events)
    return await checkpoints.begin(subscriber.uid, start)


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


async def after_time(log: str, at_ms: int, events: EventLog) -> Mapping[int, str]:
    """The places behind which is what was stored at that time or later."""
    found = await events.before(log, max(0, at_ms - 1))
    return {partition: positions.stored(position) for partition, position in found.items()}


def after_offsets(text: str, ends: Mapping[int, str]) -> Mapping[int, str]:
    """The places that PARTITION=OFFSET,… names: the next event is the first after the offset; @earliest and @latest are what they say."""
    named = {_EARLIEST: dict.fromkeys(ends, positions.BEGINNING), _LATEST: ends}
    return {
        partition: named[offset][partition] if offset in named else offset
        for partition, offset in positions.given(text).items()
        if partition in ends
    }
