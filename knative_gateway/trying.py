"""[io] Tries filters of a Trigger with stored events of its Broker, for the API. Nothing is delivered.

Laws: at most `TRIALS_MAX` trials run at a time, of one namespace half of them. A trial reads at most
`EVENTS_MAX` events and about `BYTES_MAX` bytes, and evaluates about `STEPS_MAX` steps. Filters are compiled
and evaluated in a thread, so that the event loop does other work. An event that cannot be read or evaluated
is in the answer with the reason, and does not affect the other events.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from event_formats.attributes import text_of
from event_formats.event import Value
from knative_gateway.dispatcher.arrival import Arrival, read_arrival
from knative_gateway.errors import UnavailableError
from knative_gateway.filters import trigger_filters, validate
from knative_gateway.filters.trying import Trial
from knative_gateway.filters.validation import Problem
from knative_gateway.ports import EventLog, Extents, Stored
from knative_gateway.resources.documents.large import json_pieces
from knative_gateway.resources.objects import Object, namespace_of
from knative_gateway.resources.refusals import Because, Cause, StatusError, bad_request, check_options
from service_parts.shares import Shares

T = TypeVar("T")

EVENTS_DEFAULT: Final = 20
EVENTS_MAX: Final = 100
PARTITIONS_MAX: Final = 16
"""Partitions that are read for one trial, if the request names none."""
BYTES_MAX: Final = 16 << 20
"""Bytes of events that a trial reads; the last event may exceed this limit."""
FILTERS_BYTES_MAX: Final = 16 << 10
"""Bytes of the filters as JSON."""
STEPS_MAX: Final = 4 << 20
"""Steps of the evaluation of all events. When more were needed, further events are not evaluated."""
TRIALS_MAX: Final = 2
"""Trials that run at the same time in a process. One namespace has at most half of them."""
WAITING_MAX: Final = 8
"""Trials of a namespace that wait or run. More are refused with status 429."""
READ_S_MAX: Final = 10.0
"""How long a trial may read events."""
_RETRY_S: Final = 2
"""When a client that was refused may try again."""
_ATTRIBUTES_MAX: Final = 50
"""Attributes of an event in an answer."""
_TEXT_MAX: Final = 200
"""Characters of a name, value or reason in an answer."""
_OPTIONS: Final = frozenset({"filters", "events", "partition", "event"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """A checked request.

    `events`: how many of the latest events are tried. `partition`: only events of this one; None: of all.
    `event`: the attributes of an event that is tried instead of stored ones.
    """

    filters: Sequence[Mapping[str, object]]
    events: int
    partition: int | None
    event: Mapping[str, str] | None


def wanted_of(trigger: Object, options: Mapping[str, object]) -> Wanted:
    """Return the request. Without `filters`, those of the Trigger are tried.

    Raises:
        StatusError: an option is not valid. For filters it names each problem.
    """
    check_options("match", options, _OPTIONS)
    spec = trigger.get("spec")
    given = options.get("filters", trigger_filters(spec) if isinstance(spec, Mapping) else [])
    if not _fits(given):
        message = f"filters: at most {FILTERS_BYTES_MAX} bytes of JSON can be tried"
        raise bad_request(message)
    problems = validate(given, attributes_too="filters" not in options)
    if problems:
        causes = [Cause(Because.INVALID, each.field, _words(each)) for each in problems]
        raise StatusError(422, "Invalid", f"filters are invalid: {causes[0]}", causes=causes)
    assert isinstance(given, Sequence | None), "validated"
    return Wanted(
        [each for each in given or () if isinstance(each, Mapping)],
        _number(options, "events", EVENTS_DEFAULT, least=1, most=EVENTS_MAX),
        _number(options, "partition", 0, least=0, most=1023) if "partition" in options else None,
        _event(options.get("event")),
    )


class Trials:
    """The trials of one process."""

    def __init__(self, events: EventLog) -> None:
        self._events: Final = events
        self._shares: Final = Shares(TRIALS_MAX)
        self._of: Final[Counter[str]] = Counter()
        """The trials of each namespace that wait or run."""

    async def match(self, log: str, trigger: Object, options: Mapping[str, object]) -> Mapping[str, object]:
        """Return which of the latest events of a log the filters match.

        Raises:
            StatusError: an option is not valid, the log does not have the partition, or too many trials wait.
            UnavailableError: the log is not available.
        """
        # A request that is not valid needs a place as well: to find a mistake in a long expression takes as
        # long as a trial.
        async with self.place(namespace_of(trigger)):
            wanted = await in_thread(partial(wanted_of, trigger, options))
            arrived = [] if wanted.event is not None else [each async for each in self._arrivals(log, wanted)]
            return {"kind": "Match", "events": await in_thread(partial(_tried, wanted, arrived))}

    @asynccontextmanager
    async def place(self, namespace: str) -> AsyncIterator[None]:
        if self._of[namespace] >= WAITING_MAX:
            words = "too many requests look at events of this namespace, please try again later"
            raise StatusError(429, "TooManyRequests", words, details={"retryAfterSeconds": _RETRY_S})
        self._of[namespace] += 1
        try:
            async with self._shares.place(namespace):
                yield
        finally:
            self._of[namespace] -= 1
            if not self._of[namespace]:
                del self._of[namespace]

    async def _arrivals(self, log: str, wanted: Wanted) -> AsyncIterator[Arrival]:
        try:
            async with asyncio.timeout(READ_S_MAX):
                stored = await self._stored(log, wanted)
        except TimeoutError:
            message = f"the events of {log} could not be read within {READ_S_MAX:.0f} s"
            raise UnavailableError(message) from None
        for each in stored:
            # The event loop serves other requests between two events.
            await asyncio.sleep(0)
            yield await read_arrival(each, "")

    async def _stored(self, log: str, wanted: Wanted) -> Sequence[Stored]:
        extents = await self._events.extents(log)
        chosen = _chosen(extents, wanted.partition)
        count = max(1, wanted.events // max(1, len(chosen)))
        found: list[Stored] = []
        left = BYTES_MAX
        for partition, first, end in chosen:
            if left <= 0:
                break
            start = max(first, end - count)
            part = await self._events.read_range(log, partition, start, end, bytes_max=left)
            left -= sum(len(each.message) for each in part)
            found += part
        found.sort(key=lambda each: each.timestamp_ms)
        return found[-wanted.events :]


def _chosen(extents: Extents, partition: int | None) -> list[tuple[int, int, int]]:
    """Return the partitions to read, each with its first offset and its end.

    Raises:
        StatusError: the log does not have the partition.
    """
    if partition is not None and partition not in extents.first:
        message = f"partition: the log does not have partition {partition}; it has {len(extents.first)}"
        raise bad_request(message)
    return [
        (number, int(first), int(last) + 1)
        for number in sorted(extents.first)
        if (first := extents.first[number]) is not None
        and (last := extents.last.get(number)) is not None
        and partition in {None, number}
    ][:PARTITIONS_MAX]


async def in_thread(work: Callable[[], T]) -> T:
    """Do work in a thread. If the caller is cancelled, it waits for the thread, and so keeps its place."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _tried(wanted: Wanted, arrived: Sequence[Arrival]) -> list[Mapping[str, object]]:
    trial = Trial(wanted.filters)
    if wanted.event is not None:
        return [_row({}, wanted.event, trial)]
    rows: list[Mapping[str, object]] = []
    for each in arrived:
        stored = {**each.where, "at_ms": each.timestamp_ms}
        if each.attributes is None:
            rows.append({**stored, "attributes": {}, "matches": False, "reason": each.problem[:_TEXT_MAX]})
        else:
            rows.append(_row(stored, each.attributes, trial))
    return rows


def _row(stored: Mapping[str, object], attributes: Mapping[str, Value], trial: Trial) -> Mapping[str, object]:
    """Return an entry of the answer. `stored`: where and when the event was stored, empty if it was given."""
    shown = {
        name[:_TEXT_MAX]: text_of(value)[:_TEXT_MAX]
        for name, value in list(attributes.items())[:_ATTRIBUTES_MAX]
    }
    if trial.spent > STEPS_MAX:
        reason = "not evaluated: the filters need too many steps for the events before it"
        return {**stored, "attributes": shown, "matches": None, "reason": reason}
    verdict = trial.verdict(attributes)
    return {**stored, "attributes": shown, "matches": verdict.matches, "reason": verdict.reason}


def _fits(filters: object) -> bool:
    size = 0
    for piece in json_pieces(filters):
        size += len(piece)
        if size > FILTERS_BYTES_MAX:
            return False
    return True


def _words(problem: Problem) -> str:
    return f"{problem.message}: {problem.details}" if problem.details else problem.message


def _number(options: Mapping[str, object], name: str, default: int, *, least: int, most: int) -> int:
    value: Any = options.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        message = f"{name} must be a whole number from {least} to {most}"
        raise bad_request(message)
    return value


def _event(value: object) -> Mapping[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for text in value.values()):
        message = 'event must be attributes with texts, such as {"type": "measured", "source": "/roof"}'
        raise bad_request(message)
    return {str(name): text for name, text in value.items()}
