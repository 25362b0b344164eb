"""[io] State that the parts of one subscriber's dispatcher share: specification, limits, counters, history.

Also logs the events that the subscriber did not receive.
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
"""The maximum age of an event in the latency histogram. One event with a wrong timestamp would otherwise make
the sum useless.
"""
REPORT_S: Final = 10.0
"""The time between two log lines about one subscriber's failed deliveries."""


class SubscriberState:
    """`held`: bytes of the events of all partitions. `running`: set unless the subscriber is paused."""

    def __init__(
        self, spec: Subscriber, context: DispatchContext, figures: Figures, history: History | None = None
    ) -> None:
        """`figures`: counters, which continue from their values. `history`: of a predecessor, if any.

        Raises:
            FilterError: a filter is not valid. Admission refuses such filters.
        """
        self.spec = spec
        self.filters = compile_filters(spec.filters)
        self.context: Final = context
        self.figures: Final = figures
        self.history: Final = History() if history is None else history
        self.held: Final = HeldBytes(context.settings.held_bytes_max)
        self.running: Final = asyncio.Event()
        if not spec.paused:
            self.running.set()
        self._given_up: Final[Counter[End]] = Counter()
        self._reason = ""
        self._report_later: asyncio.TimerHandle | None = None

    def update(self, spec: Subscriber) -> None:
        """Use a new specification of the same subscriber.

        Raises:
            FilterError: a filter is not valid; nothing changes.
        """
        # Compiling is expensive, and most changes of a Trigger do not touch its filters.
        if spec.filters != self.spec.filters:
            self.filters = compile_filters(spec.filters)
        self.spec = spec
        if spec.paused:
            # An event and not a flag: readers and scheduler wait for it.
            self.running.clear()
        else:
            self.running.set()

    def wants(self, arrival: Arrival) -> bool:
        """Return whether the filters match the event.

        If a filter fails, the event is skipped and recorded.
        """
        assert arrival.attributes is not None
        try:
            return self.filters.matches(arrival.attributes)
        except Exception as error:  # noqa: BLE001  it is logged and recorded
            self.not_taken(arrival, error, "the filters failed")
            return False

    # -- the record

    def skip(self, arrival: Arrival) -> None:
        """Record a stored message that is not a CloudEvent. It is skipped."""
        self.figures.skipped += 1
        self.history.skip(self.context.now_ms(), arrival)

    def not_taken(self, arrival: Arrival, error: Exception, step: str) -> None:
        """Record an event that is skipped because a step failed: an internal error, or a filter that is too
        expensive.
        """
        # A filter that is too expensive is a mistake of its author. Its stack trace would not help operators.
        costly = isinstance(error, FilterWorkError)
        where = {"subscriber": self.spec.uid, **arrival.where}
        log.error("event_not_taken", **where, reason=str(error), exc_info=None if costly else error)
        self.figures.skipped += 1
        reason = str(error) if costly else f"{step}: internal error: {error!r}"[:REASON_MAX]
        self.history.skip(self.context.now_ms(), arrival, reason)

    def overtaken(self, partition: int, lost: Lost) -> None:
        """Record events that retention removed before they were delivered."""
        self.figures.removed += lost.events
        where = {"partition": partition, "after": offset_number(lost.after), "last": offset_number(lost.last)}
        log.error("events_removed_undelivered", **self._names(), **where, count=lost.events)
        reason = (
            f"retention removed {lost.events} events of the log before they were delivered, matching or not; "
            "this offset is that of the last one"
        )
        self.history.remark(self.context.now_ms(), partition, lost.last, reason, "removed")

    def log_recreated(self) -> None:
        """Record that the log was deleted and recreated: deliveries begin at its first event."""
        reason = "the log was deleted and created again: its events are delivered from the first one"
        self.history.remark(self.context.now_ms(), 0, "", reason, "log made again")

    def accepted(self, arrival: Arrival, took_ms: int) -> None:
        """Count and note an event whose first attempt succeeded."""
        now_ms = self.context.now_ms()
        self.figures.end_to_end.note(_age_ms(arrival, now_ms))
        self.figures.delivered += 1
        self.history.recent.note(arrival.partition, arrival.offset, now_ms, took_ms)

    def ended(self, arrival: Arrival, done: Done) -> None:
        """Count and record the end of a delivery with a plan."""
        figures, now_ms = self.figures, self.context.now_ms()
        figures.end_to_end.note(_age_ms(arrival, now_ms))
        figures.replies_expired += done.reply_expired
        if done.end is End.COMPLETED:
            figures.delivered += 1
            self.history.recent.note(arrival.partition, arrival.offset, now_ms, None)
            return
        self.gave_up(done.end, "" if done.failure is None else done.failure.reason)
        if done.failure is not None:
            self.history.note(now_ms, arrival, done.failure, done.end.value)

    def gave_up(self, end: End, reason: str) -> None:
        """Count a dropped or dead-lettered event.

        The first one is logged at once, the following ones as numbers every `REPORT_S` seconds, so that a
        subscriber that is down does not fill the log.
        """
        if end is End.DROPPED:
            self.figures.dropped += 1
        else:
            self.figures.dead_lettered += 1
        self._given_up[end] += 1
        # The latest reason stands for all of them in the next log line.
        self._reason = reason
        if self._report_later is None:
            self._report()

    def report_rest(self) -> None:
        """Log the events that were not logged yet, at the end."""
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
        # Also without further failures: the timer then finds nothing to report and ends.
        self._report_later = asyncio.get_running_loop().call_later(REPORT_S, self._report)

    def _names(self) -> dict[str, str]:
        return {"kind": self.spec.kind, "namespace": self.spec.namespace, "name": self.spec.name}


def _age_ms(arrival: Arrival, now_ms: int) -> int:
    """Return the time since an event was stored: from 0 to `AGE_MAX_MS`, even if a clock is wrong."""
    return min(max(0, now_ms - arrival.timestamp_ms), AGE_MAX_MS)
