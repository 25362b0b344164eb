"""[io] The record of one subscriber's deliveries: counters, history, and a log line for what it did not get."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from knative_gateway.delivery import Done, End
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.dispatcher.figures import Figures
from knative_gateway.dispatcher.history import History
from knative_gateway.dispatcher.places import Lost
from knative_gateway.dispatcher.posting.sending import Sender
from knative_gateway.dispatcher.settings import DispatchSettings
from knative_gateway.dispatcher.subscribers.seams import REASON_MAX
from knative_gateway.filters import FilterWorkError, compile_filters
from knative_gateway.ports import EventLog, Subscriber

if TYPE_CHECKING:
    from knative_gateway.dispatcher.subscribers.track import Track

log = structlog.get_logger(__name__)

AGE_MAX_MS: Final = 7 * 24 * 3600 * 1000
"""An older event counts as this old: with a clock that is wrong by years, one event would spoil the sum for good."""
SAY_S: Final = 10.0
"""Between two log lines about one subscriber's events that were given up."""


@dataclass(frozen=True, slots=True)
class Outside:
    """What couriers need from outside. `now_ms`: since 1970 UTC; `chance`: from 0 to 1. `touched`: tracks whose
    positions moved since they were kept last. `reading`: held by a track while it reads by itself.
    """

    sender: Sender
    log: EventLog
    settings: DispatchSettings
    now_ms: Callable[[], int]
    chance: Callable[[], float]
    reading: asyncio.Semaphore
    touched: "set[Track]" = field(default_factory=set)


class Recording:
    """The part of a courier that keeps the record."""

    def __init__(self, spec: Subscriber, outside: Outside, figures: Figures) -> None:
        self.spec = spec
        self.filters = compile_filters(spec.filters)
        self.outside: Final = outside
        self.figures: Final = figures
        self.history: Final = History()
        self._given_up: Final[Counter[End]] = Counter()
        self._why = ""
        self._say_later: asyncio.TimerHandle | None = None

    def skip(self, arrival: Arrival) -> None:
        """The stored message is not a CloudEvent: skip it, and record that."""
        self.figures.skipped += 1
        self.history.skip(self.outside.now_ms(), arrival)

    def wants_it(self, arrival: Arrival) -> bool:
        """Whether its filters take the event. If they fail, the event is skipped, and the history says so."""
        assert arrival.attributes is not None
        try:
            return self.filters.matches(arrival.attributes)
        except Exception as error:  # noqa: BLE001  it is logged and recorded
            self.faulty(arrival, error, "the filters failed")
            return False

    def faulty(self, arrival: Arrival, error: Exception, what: str) -> None:
        """The event was not filtered or taken in, for a fault of ours or too much work: it is skipped, and the history says so."""
        costly = isinstance(error, FilterWorkError)
        where = {"subscriber": self.spec.uid, "partition": arrival.partition, "offset": arrival.offset}
        log.error("event_not_taken", **where, reason=str(error), exc_info=None if costly else error)
        self.figures.skipped += 1
        self.history.skip(self.outside.now_ms(), arrival, str(error) if costly else f"{what}: internal error: {error!r}"[:REASON_MAX])

    def overtaken(self, partition: int, lost: Lost) -> None:
        """Retention removed events before they were delivered."""
        self.figures.removed += lost.events
        log.error("events_removed_undelivered", **self._named(), partition=partition, after=lost.after, last=lost.last, count=lost.events)
        reason = (
            f"retention removed {lost.events} events of the log before they were delivered, matching or not, the last one at this offset"
        )
        self.history.remark(self.outside.now_ms(), partition, lost.last, reason, "removed")

    def log_made_again(self) -> None:
        """It begins at the first event of a log that was deleted and made again."""
        reason = "the log was deleted and created again: its events are delivered from the first one"
        self.history.remark(self.outside.now_ms(), 0, "", reason, "log made again")

    def _named(self) -> dict[str, str]:
        return {"kind": self.spec.kind, "namespace": self.spec.namespace, "name": self.spec.name}

    def age_ms(self, arrival: Arrival) -> int:
        """How long ago an event was stored: at least 0, at most `AGE_MAX_MS`, whatever the clocks say."""
        return min(max(0, self.outside.now_ms() - arrival.timestamp_ms), AGE_MAX_MS)

    def ended(self, arrival: Arrival, done: Done) -> None:
        """A delivery ended."""
        figures = self.figures
        figures.end_to_end.note(self.age_ms(arrival))
        figures.replies_expired += done.reply_expired
        if done.end is End.COMPLETED:
            figures.delivered += 1
            return
        self.gave_up(done.end, "" if done.failure is None else done.failure.reason)
        if done.failure is not None:
            self.history.note(self.outside.now_ms(), arrival, done.failure, done.end.value)

    def gave_up(self, end: End, reason: str) -> None:
        """An event was dropped or dead-lettered: the log says so at once, and then how many there were, every `SAY_S`."""
        if end is End.DROPPED:
            self.figures.dropped += 1
        else:
            self.figures.dead_lettered += 1
        self._given_up[end] += 1
        self._why = reason
        if self._say_later is None:
            self._say()

    def _say(self) -> None:
        self._say_later = None
        if not self._given_up:
            return
        dropped, dead_lettered = self._given_up[End.DROPPED], self._given_up[End.DEAD_LETTERED]
        self._given_up.clear()
        say = log.error if dropped else log.warning
        say("events_not_delivered", **self._named(), dropped=dropped, dead_lettered=dead_lettered, reason=self._why)
        self._say_later = asyncio.get_running_loop().call_later(SAY_S, self._say)

    def say_rest(self) -> None:
        """At the end: log what has not been logged yet."""
        if self._say_later is not None:
            self._say_later.cancel()
            self._say()
        if self._say_later is not None:
            self._say_later.cancel()
