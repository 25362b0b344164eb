"""[io] Stored events of a Broker or Channel: the latest ones, those with an id, and one of them.

Laws: pages that follow one another have each event once. A page reads about `BYTES_MAX` bytes, a search
`SEARCH_BYTES_MAX`. Messages are decoded in a thread.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Self

from event_formats.attributes import text_of
from event_formats.event import Value
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.paths.asked import Wanted
from knative_gateway.ports import EventLog, Extents, Stored
from knative_gateway.resources.refusals import StatusError, bad_request
from knative_gateway.trying import in_thread

PARTITIONS_MAX: Final = 16
"""Partitions that are listed, if the request names none."""
BYTES_MAX: Final = 16 << 20
"""Bytes of events that a page reads; the last event of each partition may exceed this limit."""
SEARCH_BYTES_MAX: Final = 64 << 20
"""Bytes of events that a search reads."""
ATTRIBUTES_MAX: Final = 50
"""Attributes of an event in an answer."""
VALUE_MAX: Final = 1024
"""Characters of a name or value in an answer."""
DATA_MAX: Final = 4096
"""Bytes of the data of an event in an answer."""
_AT_ONCE: Final = 256
"""Events that a search reads and decodes at once."""
_NAMES: Final = (b"cloudEvents:id", b"cloudEvents_id")
"""The names of the id in a message in binary mode, where its value is written as it is."""


Matching = Callable[[Stored], Arrival | None]
"""Returns the event of a message if it is one that is looked for."""


@dataclass(slots=True)
class Budget:
    """What a search may still look at."""

    events: int
    bytes: int = SEARCH_BYTES_MAX

    def lasts(self) -> bool:
        """Return whether more may be looked at."""
        return self.events > 0 and self.bytes > 0


@dataclass(slots=True)
class Found:
    """Events, the newest first. `marks`: all events before these offsets were not looked at."""

    arrivals: list[Arrival] = field(default_factory=list)
    marks: dict[int, int] = field(default_factory=dict)
    looked_at: int = 0


class Log:
    """A log as its extents were when it was opened. `first`: the first offset of each partition; of an empty
    one, 0.
    """

    def __init__(self, events: EventLog, name: str, extents: Extents) -> None:
        self._events: Final = events
        self._name: Final = name
        self._extents: Final = extents
        self.first: Final = {partition: int(first or 0) for partition, first in extents.first.items()}

    @classmethod
    async def opened(cls, events: EventLog, name: str) -> Self:
        """Return the log as it is now. Raises UnavailableError."""
        return cls(events, name, await events.extents(name))

    async def marks(self, wanted: Wanted) -> dict[int, int]:
        """Return where a request begins: before these offsets.

        Raises:
            StatusError: the log does not have the partition.
        """
        if wanted.partition is not None and wanted.partition not in self.first:
            count = len(self.first)
            message = f"partition: the log does not have partition {wanted.partition}; it has {count}"
            raise bad_request(message)
        marks = self._ends() if wanted.at_ms is None else await self.before_time(wanted.at_ms)
        before = wanted.before
        return {
            partition: max(
                self.first[partition], mark if before is None else min(mark, before.get(partition, 0))
            )
            for partition, mark in marks.items()
            if wanted.partition in {None, partition}
        }

    async def before_time(self, at_ms: int) -> dict[int, int]:
        """Return the marks that have all events before them that were stored up to a time."""
        found = await self._events.before(self._name, at_ms)
        return {
            partition: min(end, -1 if (position := found.get(partition)) is None else int(position)) + 1
            for partition, end in ((partition, mark - 1) for partition, mark in self._ends().items())
        }

    def _ends(self) -> dict[int, int]:
        last = self._extents.last
        return {
            partition: 0 if (end := last.get(partition)) is None else int(end) + 1 for partition in self.first
        }

    async def one(self, partition: int, offset: int) -> Arrival:
        """Return one stored event.

        Raises:
            StatusError: the log does not have it (404).
            UnavailableError: the log is not available.
        """
        if partition not in self.first:
            raise _missing(
                f"the log does not have partition {partition}; it has {len(self.first)}, from 0 on"
            )
        if offset >= self._ends()[partition]:
            raise _missing(f"partition {partition} does not have the offset {offset} yet")
        first = self.first[partition]
        if offset < first:
            raise _missing(f"retention has removed the event {partition}:{offset}; the first one is {first}")
        found = await self._events.read_range(self._name, partition, offset, offset + 1, bytes_max=1)
        if not found:
            raise _missing(f"the event {partition}:{offset} was removed")
        return await in_thread(partial(Arrival, found[0], ""))

    async def latest(self, marks: Mapping[int, int], count: int) -> Found:
        """Return the latest events of all partitions before the marks."""
        chosen = [each for each in sorted(marks) if marks[each] > self.first[each]][:PARTITIONS_MAX]
        found = Found(marks=dict(marks))
        stored: list[Stored] = []
        for partition in chosen:
            part, start = await self._newest(partition, marks[partition], count, BYTES_MAX // len(chosen))
            stored += part
            found.marks[partition] = start
        found.looked_at = len(stored)
        stored.sort(key=lambda each: (each.timestamp_ms, each.offset), reverse=True)
        for each in stored[count:]:
            # They come on the next page: it begins after the newest event of the partition that is left out.
            found.marks[each.partition] = max(found.marks[each.partition], int(each.offset) + 1)
        found.arrivals = await in_thread(lambda: [Arrival(each, "") for each in stored[:count]])
        return found

    async def searched(
        self, marks: Mapping[int, int], matching: Matching, budget: Budget, *, enough: int
    ) -> Found:
        """Look back from the marks until there are enough events, nothing is left, or the budget is spent."""
        found = Found(marks=dict(marks))
        left = [partition for partition, mark in found.marks.items() if mark > self.first[partition]]
        while left and len(found.arrivals) < enough and budget.lasts():
            for partition in left:
                # An answer has at most `enough` events and those of one reading.
                if len(found.arrivals) >= enough or not budget.lasts():
                    break
                count = min(_AT_ONCE, budget.events)
                part, start = await self._newest(partition, found.marks[partition], count, budget.bytes)
                budget.events -= len(part)
                budget.bytes -= sum(len(each.message) for each in part)
                found.looked_at += len(part)
                found.marks[partition] = start
                found.arrivals += await in_thread(partial(_matching, part, matching))
            left = [partition for partition in left if found.marks[partition] > self.first[partition]]
        found.arrivals.sort(key=lambda each: each.timestamp_ms, reverse=True)
        return found

    async def _newest(
        self, partition: int, end: int, count: int, bytes_max: int
    ) -> tuple[Sequence[Stored], int]:
        """Return the latest events of a partition before `end`, and the offset from which on they are all."""
        while True:
            start = max(self.first[partition], end - count)
            found = await self._events.read_range(
                self._name, partition, start, end, bytes_max=max(1, bytes_max)
            )
            if count == 1 or sum(len(each.message) for each in found) < bytes_max:
                return found, start
            # The last ones may be missing, and the newest must not be. A single event is read in any case.
            count = max(1, count // 4)


async def listed(events: EventLog, name: str, wanted: Wanted) -> Mapping[str, object]:
    """Return the answer to a request for events.

    Raises:
        StatusError: the log does not have the partition.
        UnavailableError: the log is not available.
    """
    log = await Log.opened(events, name)
    marks = await log.marks(wanted)
    if wanted.is_search:
        matching = by_identity(wanted.id, wanted.source)
        found = await log.searched(marks, matching, Budget(wanted.look_at), enough=wanted.events)
    else:
        found = await log.latest(marks, wanted.events)
    more = {str(partition): mark for partition, mark in found.marks.items() if mark > log.first[partition]}
    rows = await in_thread(lambda: [row(each) for each in found.arrivals])
    answer: dict[str, object] = {"kind": "Events", "events": rows, "looked_at": found.looked_at}
    return {**answer, "before": more} if more else answer


def by_identity(event_id: str, source: str) -> Matching:
    """Return a function that returns the event of a message if it has this id and this source. Empty: any."""
    needle = event_id.encode(errors="surrogatepass")

    def matching(stored: Stored) -> Arrival | None:
        # Nearly all messages are in binary mode and have another id: they need not be decoded.
        if needle and needle not in stored.message and any(name in stored.message for name in _NAMES):
            return None
        arrival = Arrival(stored, "")
        found_id, found_source = arrival.identity
        is_same = (not event_id or found_id == event_id) and (not source or found_source == source)
        return arrival if is_same else None

    return matching


def row(arrival: Arrival) -> dict[str, object]:
    """Return an event as an entry of an answer, without its data."""
    event = arrival.event
    data = None if event is None else event.data
    return {
        **arrival.where,
        "at_ms": arrival.timestamp_ms,
        "attributes": attributes_of(arrival.attributes or {}),
        "bytes": None if data is None else len(data),
        **({"problem": arrival.problem[:VALUE_MAX]} if arrival.attributes is None else {}),
    }


def attributes_of(attributes: Mapping[str, Value]) -> dict[str, str]:
    """Return attributes as texts, cut to the limits of an answer."""
    return {
        name[:VALUE_MAX]: text_of(value)[:VALUE_MAX]
        for name, value in list(attributes.items())[:ATTRIBUTES_MAX]
    }


def data_of(data: bytes | None) -> dict[str, object]:
    """Return the beginning of data: as text if it is UTF-8, else in hexadecimal digits."""
    if data is None:
        return {}
    part = data[:DATA_MAX]
    cuts = range(4) if len(data) > DATA_MAX else range(1)  # the limit may cut a character in two
    for cut in cuts:
        with suppress(UnicodeDecodeError):
            return {"data": part[: len(part) - cut].decode(), "is_cut": len(part) - cut < len(data)}
    return {"data_hex": part[: DATA_MAX // 4].hex(" "), "is_cut": len(data) > DATA_MAX // 4}


def _matching(stored: Sequence[Stored], matches: Matching) -> list[Arrival]:
    return [arrival for each in stored if (arrival := matches(each)) is not None]


def _missing(message: str) -> StatusError:
    return StatusError(404, "NotFound", message)
