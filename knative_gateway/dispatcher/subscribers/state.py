"""[io] What the parts of one subscriber's dispatcher share: its specification, limits and record.

The record is counters, history, and a log line for what the subscriber did not get.
"""

import asyncio
from collections import Counter
from typing import Final

import structlog

from knative_gateway.delivery import Done, End
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.dispatcher.context import DispatchContext
from knative_gateway.dispatcher.figures import Figures
from knative_gateway.dispatcher.history import History
from knative_gateway.dispatcher.positions import Lost
from knative_gateway.dispatcher.subscribers.source import HeldBytes
from knative_gateway.dispatcher.subscribers.steps import REASON_MAX
from knative_gateway.filters import FilterWorkError, compile_filters
from knative_gateway.offsets import offset_number
from knative_gateway.ports import Subscriber

log = structlog.get_logger(__name__)

AGE_MAX_MS: Final = 7 * 24 * 3600 * 1000
"""An older event counts as this old: if a clock is wrong by years, one event would spoil the sum for good."""
REPORT_S: Final = 10.0
"""The time between two log lines about one subscriber's events that were given up."""


class SubscriberState:
    """`held`: bytes of the events of all partitions. `running` is set unless the subscriber is paused."""

    def __init__(self, spec: Subscriber, context: DispatchContext, figures: Figures) -> None:
        """`figures` continue to count.

        Raises:
            FilterError: a filter is not valid; admission should have refused it.
        """
        self.spec = spec
        self.filters = compile_filters(spec.filters)
        self.context: Final = context
        self.figures: Final = figures
        self.history: Final = History()
        self.held: Final = HeldBytes(context.settings.held_bytes_max)
        self.running: Final = asyncio.Event()
        if not spec.paused:
            self.running.set()
        self._given_up: Final[Counter[End]] = Counter()
        self._reason = ""
        self._report_later: asyncio.TimerHandle | None = None

    def update(self, spec: Subscriber) -> None:
        """Use another specification of the same subscriber. Raises FilterError as above; nothing changes
        then.
        """
        if spec.filters != self.spec.filters:
            self.filters = compile_filters(spec.filters)
        self.spec = spec
        if spec.paused:
            self.running.clear()
        else:
            self.running.set()

    def wants(self, arrival: Arrival) -> bool:
        """Whether the filters match the event. If they fail, the event is skipped, and the
        history says so.
        """
        assert arrival.attributes is not None
        try:
            return self.filters.matches(arrival.attributes)
        except Exception as error:  # noqa: BLE001  it is logged and recorded
            self.not_taken(arrival, error, "the filters failed")
            return False

    # -- the record

    def skip(self, arrival: Arrival) -> None:
        """The stored message is not a CloudEvent: skip it, and record that."""
        self.figures.skipped += 1
        self.history.skip(self.context.now_ms(), arrival)

    def not_taken(self, arrival: Arrival, error: Exception, step: str) -> None:
        """A step failed on an event, by an internal error or by too much work: skip the event, and record
        that.
        """
        costly = isinstance(error, FilterWorkError)
        where = {"subscriber": self.spec.uid, **arrival.where}
        log.error("event_not_taken", **where, reason=str(error), exc_info=None if costly else error)
        self.figures.skipped += 1
        reason = str(error) if costly else f"{step}: internal error: {error!r}"[:REASON_MAX]
        self.history.skip(self.context.now_ms(), arrival, reason)

    def overtaken(self, partition: int, lost: Lost) -> None:
        """Retention removed events before they were delivered."""
        self.figures.removed += lost.events
        where = {"partition": partition, "after": offset_number(lost.after), "last": offset_number(lost.last)}
        log.error("events_removed_undelivered", **self._names(), **where, count=lost.events)
        reason = (
            f"retention removed {lost.events} events of the log before they were delivered, matching or not; "
            "this offset is that of the last one"
        )
        self.history.remark(self.context.now_ms(), partition, lost.last, reason, "removed")

    def log_recreated(self) -> None:
        """The log was deleted and created again; deliveries begin at its first event."""
        reason = "the log was deleted and created again: its events are delivered from the first one"
        self.history.remark(self.context.now_ms(), 0, "", reason, "log made again")

    def age_ms(self, arrival: Arrival) -> int:
        """The time since an event was stored: at least 0, at most `AGE_MAX_MS`, even if clocks are wrong."""
        return min(max(0, self.context.now_ms() - arrival.timestamp_ms), AGE_MAX_MS)

    def accepted(self, arrival: Arrival) -> None:
        """The first attempt succeeded."""
        self.figures.end_to_end.note(self.age_ms(arrival))
        self.figures.delivered += 1

    def ended(self, arrival: Arrival, done: Done) -> None:
        """A delivery with a plan ended."""
        figures = self.figures
        figures.end_to_end.note(self.age_ms(arrival))
        figures.replies_expired += done.reply_expired
        if done.end is End.COMPLETED:
            figures.delivered += 1
            return
        self.gave_up(done.end, "" if done.failure is None else done.failure.reason)
        if done.failure is not None:
            self.history.note(self.context.now_ms(), arrival, done.failure, done.end.value)

    def gave_up(self, end: End, reason: str) -> None:
        """An event was dropped or dead-lettered: log the first at once, then the numbers every `REPORT_S`."""
        if end is End.DROPPED:
            self.figures.dropped += 1
        else:
            self.figures.dead_lettered += 1
        self._given_up[end] += 1
        self._reason = reason
        if self._report_later is None:
            self._report()

    def report_rest(self) -> None:
        """At the end: log what has not been logged yet."""
        if self._report_later is not None:
            self._report_later.cancel()
            self._report()
        if self._report_later is not None:
            self._report_later.cancel()

    def _report(self) -> None:
        self._report_later = None
        if not self._given_up:
            return
        dropped, dead_lettered = self._given_up[End.DROPPED], self._given_up[End.DEAD_LETTERED]
        self._given_up.clear()
        write = log.error if dropped else log.warning
        counts = {"dropped": dropped, "dead_lettered": dead_lettered}
        write("events_not_delivered", **self._names(), **counts, reason=self._reason)
        self._report_later = asyncio.get_running_loop().call_later(REPORT_S, self._report)

    def _names(self) -> dict[str, str]:
        return {"kind": self.spec.kind, "namespace": self.spec.namespace, "name": self.spec.name}
