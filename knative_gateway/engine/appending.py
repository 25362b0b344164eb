"""[io] Appends to logs: many in parallel, bounded, each with its own outcome.

An append succeeds only after the node has reported it as durable. The number of waiting events and their
waiting time are bounded. A log that is unavailable or slow fails only its own appends.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from amqp_streams.client import Client, Producer, RejectedError, ReleasedError
from amqp_streams.client.producing.outbox import LoneEntry
from amqp_streams.errors import AmqpStreamsError
from knative_gateway.errors import (
    BadRequestError,
    GatewayError,
    OverloadedError,
    TooLargeError,
    UnavailableError,
)

log = structlog.get_logger(__name__)

# One timer for a whole queue, because a timer for each event is slow. An event waits up to this much longer
# than its limit.
_SWEEP_S: Final = 0.25
_LOOK_S: Final = 0.01
_WARN_S: Final = 10.0
_TOO_LARGE: Final = "amqp:link:message-size-exceeded"
_NEVER: Final = frozenset(("amqp:decode-error", "amqp:invalid-field"))
"""Conditions of a message that is refused because of its content, for example a group key of more than 64
KiB.
"""
# With the defaults, 256 MiB of events wait at most in the whole gateway, and one blocked log takes a quarter
# of it.
ALL_LOGS: Final = 4
"""All logs together may use this many times the limits of one log."""

Report = Callable[[GatewayError | None], None]
"""Called with the outcome of an append: None if it is durable, else the error."""


@dataclass(frozen=True, slots=True)
class AppendLimits:
    """Limits of the appends without an outcome: events and bytes of one log, and the waiting time of one
    event.

    All logs together may use ALL_LOGS times as much. Beyond that, each log has an equal share, so that
    blocked logs leave room for the others. A log that failed is not retried for `retry_s`.
    """

    events: int = 20_000
    bytes: int = 64 << 20
    wait_s: float = 5.0
    retry_s: float = 1.0


class _Total:
    """The appends of all queues without an outcome.

    The queues update the counters directly, because they do it for every event.
    """

    def __init__(self, limits: AppendLimits) -> None:
        self.events_max: Final = ALL_LOGS * limits.events
        self.bytes_max: Final = ALL_LOGS * limits.bytes
        self.events = 0
        self.bytes = 0
        self.queues = 0
        """The number of queues with at least one event."""

    # The share is computed at each call and not kept: it changes whenever a queue becomes empty or gets its
    # first event.
    def has_share(self, events: int, size: int) -> bool:
        """Return whether a queue with this many events and bytes uses less than an equal share."""
        queues = max(1, self.queues)
        return events < max(1, self.events_max // queues) and size < max(1, self.bytes_max // queues)


class Appender:
    """Appends to any log of one node."""

    def __init__(self, client: Client, limits: AppendLimits | None = None) -> None:
        self._client: Final = client
        self._limits: Final = limits or AppendLimits()
        self._queues: Final[dict[str, _AppendQueue]] = {}
        self._total: Final = _Total(self._limits)

    @property
    def pending(self) -> Mapping[str, tuple[int, int]]:
        """How many events and bytes have no outcome, and how many may have none."""
        total = self._total
        return {
            "pendingEvents": (total.events, total.events_max),
            "pendingBytes": (total.bytes, total.bytes_max),
        }

    def append(self, log: str, message: bytes) -> Coroutine[None, None, None]:
        """Store one message. It is durable when the returned coroutine returns.

        Raises:
            OverloadedError, UnavailableError, TooLargeError, BadRequestError: the message was not stored, or,
            with
                UnavailableError, it is not known whether it was.
        """
        queue = self._queues.get(log)
        if queue is None or queue.failure is not None:
            queue = self._queue_of(log, queue)
        return queue.append(message)

    def post(self, log: str, message: bytes, report: Report) -> None:
        """Store one message without waiting. `report` is called once, later.

        Raises:
            OverloadedError, UnavailableError: the message cannot be queued; `report` is not called.
        """
        queue = self._queues.get(log)
        if queue is None or queue.failure is not None:
            queue = self._queue_of(log, queue)
        queue.post(message, report)

    def forget(self, log: str) -> None:
        """Stop appending to a log, and fail its waiting appends."""
        # Removed before it is stopped: an append that arrives meanwhile gets a new queue, which the node
        # refuses if the log is gone.
        queue = self._queues.pop(log, None)
        if queue is not None:
            queue.stop(UnavailableError(f"{log} is no longer served"))

    async def close(self, drain_s: float) -> None:
        """Wait up to `drain_s` for outcomes, and stop."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + drain_s
        # Polling, because an event object would have to be updated at every append, only for this one moment.
        while loop.time() < latest and any(queue.waiting for queue in self._queues.values()):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        for log in list(self._queues):
            self.forget(log)

    def _queue_of(self, log: str, failed: "_AppendQueue | None") -> "_AppendQueue":
        now = asyncio.get_running_loop().time()
        if failed is not None:
            # Without a pause, each event for a log that does not exist would open a link and have it refused.
            if now < failed.failed_at + self._limits.retry_s:
                assert failed.failure is not None
                raise UnavailableError(str(failed.failure))
            failed.stop(failed.failure or UnavailableError("failed"))
        queue = self._queues[log] = _AppendQueue(self._client, log, self._limits, self._total)
        return queue


class _Entry(LoneEntry):
    """One append, and the function that is called with its outcome."""

    __slots__ = ("deadline", "queue", "report")

    def __init__(self, message: bytes, queue: "_AppendQueue", report: Report, deadline: float) -> None:
        # Hot path: an entry is created for every event. Setting the fields of the base classes here avoids
        # a call of `__init__`.
        self.event = None
        self.message = message
        self.message_format = 0
        self.number = 0
        self.attempts = 0
        self.outcome = None
        self.cancelled = False
        self.queue: Final = queue
        self.report: Report | None = report
        self.deadline: Final = deadline
        self.on_outcome = self.answered

    def answered(self) -> None:
        """Called by the producer: the outcome is known."""
        # Broken here, because the entry and its bound method refer to each other: the entry is released at
        # once and not by the garbage collector.
        self.on_outcome = None
        outcome = self.outcome
        error = outcome if isinstance(outcome, AmqpStreamsError) else None
        # A cancelled append is not a failure of the log.
        self.queue.answered(len(self.message), None if self.cancelled else error)
        self.end(None if error is None else _explained(error))

    def give_up(self, error: GatewayError) -> None:
        """End the append with an error. An event that was not sent yet is not sent."""
        self.cancelled = True
        self.end(error)

    def end(self, error: GatewayError | None) -> None:
        """Report the outcome, once."""
        report, self.report = self.report, None
        if report is not None:
            try:
                report(error)
            except Exception:
                # The other entries of the batch still need their outcomes.
                log.exception("append_fault", log=self.queue.log)


class _AppendQueue:
    """The append queue of one log: its producer, and the entries without an outcome."""

    def __init__(self, client: Client, log: str, limits: AppendLimits, total: _Total) -> None:
        self.log: Final = log
        self.failure: UnavailableError | None = None
        self.failed_at = 0.0
        self.entries: Final[deque[_Entry]] = deque()
        self._limits: Final = limits
        self._total: Final = total
        self._loop: Final = asyncio.get_running_loop()
        self._producer: Final = client.producer(log, window=limits.events)
        self._opening: Final = self._loop.create_task(self._open(self._producer))
        self._sweeper: asyncio.TimerHandle | None = None
        self._away_at = 0.0
        self._warned_at: float | None = None
        self._posted: list[_Entry] = []
        self._events = 0
        self._bytes = 0

    @property
    def waiting(self) -> bool:
        """Whether an append does not have its outcome yet."""
        return self._events > 0

    async def append(self, message: bytes) -> None:
        """Post the message and wait for its outcome."""
        future: asyncio.Future[None] = self._loop.create_future()
        # A future for each append and not a task: a task is much more expensive.
        entry = self.post(message, partial(_settle, future))
        try:
            await future
        except asyncio.CancelledError:
            entry.cancelled = True
            raise

    def post(self, message: bytes, report: Report) -> _Entry:
        """Queue a message. All messages of one iteration of the event loop are sent together."""
        limits, total = self._limits, self._total
        # One message is always accepted by an empty queue, even if it is larger than the limit of bytes. The
        # node decides about its size.
        if self._events >= limits.events or self._bytes + len(message) > max(limits.bytes, len(message)):
            raise self._pushed_back(f"{self._events} events ({self._bytes} bytes) wait for {self.log}")
        # Above the total, a log with less than its share still gets room. So logs that are blocked cannot
        # stop the others.
        if (total.events >= total.events_max or total.bytes >= total.bytes_max) and not total.has_share(
            self._events, self._bytes
        ):
            raise self._pushed_back(
                f"{total.events} events ({total.bytes} bytes) wait for {total.queues} logs"
            )
        entries = self.entries
        # Entries with an outcome leave lazily, from the front: removing one from the middle of a deque would
        # cost its length.
        while entries and entries[0].report is None:
            entries.popleft()
        entry = _Entry(message, self, report, self._loop.time() + limits.wait_s)
        size = len(message)
        if not self._events:
            total.queues += 1
        total.events += 1
        total.bytes += size
        self._events += 1
        self._bytes += size
        entries.append(entry)
        if not self._posted:
            # One call to the producer for all events of an iteration: they leave as one block, and the node
            # can store them with one sync.
            self._loop.call_soon(self._post)
        self._posted.append(entry)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)
        return entry

    def _post(self) -> None:
        """Pass all messages of this iteration to the producer."""
        posted, self._posted = self._posted, []
        self._producer.post_entries(posted)

    def answered(self, size: int, error: AmqpStreamsError | None) -> None:
        """An entry has its outcome. An error that does not concern only this event ends the queue."""
        self._events -= 1
        self._bytes -= size
        total = self._total
        total.events -= 1
        total.bytes -= size
        if not self._events:
            total.queues -= 1
        # A rejection is about this event. Any other error is about the link, and the link does not work again
        # after it.
        if error is not None and self.failure is None and not isinstance(error, RejectedError):
            self._failed(error)

    def stop(self, error: UnavailableError) -> None:
        """Fail the waiting entries, and accept no more."""
        self.failure = error
        self._opening.cancel()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for entry in self.entries:
            entry.give_up(error)
        # In a task, because `stop` is called from callbacks that cannot wait for the node.
        closing = self._loop.create_task(_close(self._producer))
        _closing.add(closing)
        closing.add_done_callback(_closing.discard)

    def _sweep(self) -> None:
        """Fail the entries that waited too long. The oldest entries come first."""
        entries, now = self.entries, self._loop.time()
        # Noted at each sweep: the time tells later whether the link was lost while an event waited.
        if not self._producer.attached:
            self._away_at = now
        while entries and (entries[0].report is None or entries[0].deadline <= now):
            entry = entries.popleft()
            if entry.report is not None:
                words = f"{self.log} did not store the event within {self._limits.wait_s:g} s"
                entry.give_up(self._pushed_back(words, entry.deadline - self._limits.wait_s))
        self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep) if entries else None

    def _pushed_back(self, words: str, since: float | None = None) -> OverloadedError | UnavailableError:
        """Return the error for an event that would wait, or has waited, too long.

        If the link has existed since `since`, the node is slow (429). Otherwise the node is unreachable
        (503). If the node has reported why it stores nothing (for example a full disk), the error has the
        node's message and is 503, because sending less does not help.
        """
        obstacle = self._producer.obstacle
        if isinstance(obstacle, ReleasedError):
            self._warn(str(obstacle))
            return UnavailableError(f"{words}: the event log node reports: {obstacle}")
        there = self._producer.attached and (since is None or self._away_at < since)
        return (
            OverloadedError(words)
            if there
            else UnavailableError(f"{words}: the event log node is unreachable")
        )

    def _warn(self, reason: str) -> None:
        """Log at most every _WARN_S. Otherwise each refused event would be a line."""
        now = self._loop.time()
        if self._warned_at is None or now >= self._warned_at + _WARN_S:
            self._warned_at = now
            log.warning("events_not_stored", log=self.log, reason=reason)

    def _failed(self, error: AmqpStreamsError) -> None:
        self.failure = UnavailableError(f"{self.log}: {error}")
        self.failed_at = self._loop.time()

    async def _open(self, producer: Producer) -> None:
        try:
            await producer.open(timeout=None)
        except AmqpStreamsError as error:
            if self.failure is None:
                self._failed(error)


def _settle(future: "asyncio.Future[None]", error: GatewayError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


_closing: Final[set["asyncio.Task[None]"]] = set()


async def _close(producer: Producer) -> None:
    with suppress(AmqpStreamsError):  # the entries already have their outcomes
        await producer.close(timeout=1.0)


def _explained(error: AmqpStreamsError) -> GatewayError:
    """Return the error for the sender of an event that was not accepted."""
    if isinstance(error, RejectedError) and error.condition == _TOO_LARGE:
        return TooLargeError(f"the log cannot store this event: {error.description}")
    if isinstance(error, RejectedError) and error.condition in _NEVER:
        return BadRequestError(f"the log cannot store this event: {error.description}")
    return UnavailableError(f"the log did not store the event: {error}")
