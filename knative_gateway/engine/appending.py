"""[io] Appending to logs: many at once, bounded, each with its own outcome.

Laws: nothing is reported stored before the node said that it is durable; what waits is bounded, and so is how long; a log that is away or
pushes back fails its own appends and no others.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from amqp_streams.client import Client, Producer, RejectedError, ReleasedError
from amqp_streams.client.producing.outbox import LoneEntry
from amqp_streams.errors import AmqpStreamsError
from knative_gateway.errors import BadRequestError, GatewayError, OverloadedError, TooLargeError, UnavailableError

log = structlog.get_logger(__name__)

_SWEEP_S: Final = 0.25
_LOOK_S: Final = 0.01
_WARN_S: Final = 10.0
_TOO_LARGE: Final = "amqp:link:message-size-exceeded"
_NEVER: Final = frozenset(("amqp:decode-error", "amqp:invalid-field"))
"""Conditions of a message that is refused for what it is, such as a partition key of more than 64 KiB."""
ALL_LOGS: Final = 4
"""All logs together may have so many times what one log may."""

Told = Callable[[GatewayError | None], None]
"""Who is told what became of an append: None when it is durable."""


@dataclass(frozen=True, slots=True)
class AppendLimits:
    """What appends may take: of one log, without an outcome yet, at most so many events and bytes; of one event so long.

    All logs together may have ALL_LOGS times as much; beyond that each has an equal share, so that logs that are stuck leave room for
    the others. `retry_s` is how long a log that failed is not tried again.
    """

    events: int = 20_000
    bytes: int = 64 << 20
    wait_s: float = 5.0
    retry_s: float = 1.0


class _Total:
    """What all lanes have without an outcome. Lanes update the counters directly, because they do it for every event."""

    def __init__(self, limits: AppendLimits) -> None:
        self.events_max: Final = ALL_LOGS * limits.events
        self.bytes_max: Final = ALL_LOGS * limits.bytes
        self.events = 0
        self.bytes = 0
        self.lanes = 0
        """Those that have something."""

    def has_share(self, events: int, size: int) -> bool:
        """Whether a lane that has so much has less than an equal share."""
        lanes = max(1, self.lanes)
        return events < max(1, self.events_max // lanes) and size < max(1, self.bytes_max // lanes)


class Appender:
    """Appends to any log of one node."""

    def __init__(self, client: Client, limits: AppendLimits | None = None) -> None:
        self._client: Final = client
        self._limits: Final = limits or AppendLimits()
        self._lanes: Final[dict[str, _Lane]] = {}
        self._total: Final = _Total(self._limits)

    def append(self, log: str, message: bytes) -> Coroutine[None, None, None]:
        """Store one message; durable when what it gives, awaited, returns.

        Raises: OverloadedError, UnavailableError, TooLargeError.
        """
        lane = self._lanes.get(log)
        if lane is None or lane.failure is not None:
            lane = self._lane(log, lane)
        return lane.append(message)

    def post(self, log: str, message: bytes, told: Told) -> None:
        """The same without waiting: `told` is called once, later, with None when it is durable, else with why it is not known to be.

        Raises: what `append` raises, where that is known at once; `told` is not called then.
        """
        lane = self._lanes.get(log)
        if lane is None or lane.failure is not None:
            lane = self._lane(log, lane)
        lane.post(message, told)

    def forget(self, log: str) -> None:
        """The log is used no more."""
        lane = self._lanes.pop(log, None)
        if lane is not None:
            lane.stop(UnavailableError(f"{log} is not served any more"))

    async def close(self, drain_s: float) -> None:
        """Wait for outcomes, at most so long, and end."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + drain_s
        # An event object would have to be looked after for every append, for this one end.
        while any(lane.waiting for lane in self._lanes.values()) and loop.time() < latest:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        for log in list(self._lanes):
            self.forget(log)

    def _lane(self, log: str, failed: "_Lane | None") -> "_Lane":
        now = asyncio.get_running_loop().time()
        if failed is not None:
            if now < failed.failed_at + self._limits.retry_s:
                assert failed.failure is not None
                raise UnavailableError(str(failed.failure))
            failed.stop(failed.failure or UnavailableError("failed"))
        lane = self._lanes[log] = _Lane(self._client, log, self._limits, self._total)
        return lane


class _Entry(LoneEntry):
    """One append, and who is told what becomes of it."""

    __slots__ = ("deadline", "lane", "told")

    def __init__(self, message: bytes, lane: "_Lane", told: Told, deadline: float) -> None:
        # What the classes above do, without their calls: this is made for every event.
        self.event = None
        self.message = message
        self.message_format = 0
        self.number = 0
        self.attempts = 0
        self.outcome = None
        self.cancelled = False
        self.lane: Final = lane
        self.told: Told | None = told
        self.deadline: Final = deadline
        self.on_outcome = self.landed

    def landed(self) -> None:
        """The producer knows what became of it."""
        self.on_outcome = None
        outcome = self.outcome
        error = outcome if isinstance(outcome, AmqpStreamsError) else None
        # Giving up one that waits is not a failure of the log.
        self.lane.landed(len(self.message), None if self.cancelled else error)
        self.end(None if error is None else _explained(error))

    def give_up(self, error: GatewayError) -> None:
        """Not to be waited for any longer; if it was not sent yet, it is not."""
        self.cancelled = True
        self.end(error)

    def end(self, error: GatewayError | None) -> None:
        """Tell, unless that was done."""
        told, self.told = self.told, None
        if told is not None:
            try:
                told(error)
            except Exception:
                # Others have their outcomes in the same batch.
                log.exception("append_fault", log=self.lane.log)


class _Lane:
    """One log's producer, and what has no outcome yet."""

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
        """Something has no outcome yet."""
        return self._events > 0

    async def append(self, message: bytes) -> None:
        """Post it and wait for its outcome."""
        future: asyncio.Future[None] = self._loop.create_future()
        entry = self.post(message, partial(_settle, future))
        try:
            await future
        except asyncio.CancelledError:
            entry.cancelled = True
            raise

    def post(self, message: bytes, told: Told) -> _Entry:
        """Send it with all that comes in this turn of the loop."""
        limits, total = self._limits, self._total
        if self._events >= limits.events or self._bytes + len(message) > max(limits.bytes, len(message)):
            raise self._pushed_back(f"{self._events} events ({self._bytes} bytes) wait for {self.log}")
        if (total.events >= total.events_max or total.bytes >= total.bytes_max) and not total.has_share(self._events, self._bytes):
            raise self._pushed_back(f"{total.events} events ({total.bytes} bytes) wait for {total.lanes} logs")
        entries = self.entries
        while entries and entries[0].told is None:
            entries.popleft()
        entry = _Entry(message, self, told, self._loop.time() + limits.wait_s)
        size = len(message)
        if not self._events:
            total.lanes += 1
        total.events += 1
        total.bytes += size
        self._events += 1
        self._bytes += size
        entries.append(entry)
        if not self._posted:
            self._loop.call_soon(self._post)
        self._posted.append(entry)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)
        return entry

    def _post(self) -> None:
        """Give the producer all that came in this turn of the loop."""
        posted, self._posted = self._posted, []
        self._producer.post_entries(posted)

    def landed(self, size: int, error: AmqpStreamsError | None) -> None:
        """One of them has an outcome; an error that is not about itself ends the lane."""
        self._events -= 1
        self._bytes -= size
        total = self._total
        total.events -= 1
        total.bytes -= size
        if not self._events:
            total.lanes -= 1
        if error is not None and self.failure is None and not isinstance(error, RejectedError):
            self._failed(error)

    def stop(self, error: UnavailableError) -> None:
        """Fail what waits, and take nothing more."""
        self.failure = error
        self._opening.cancel()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for entry in self.entries:
            entry.give_up(error)
        closing = self._loop.create_task(_close(self._producer))
        _closing.add(closing)
        closing.add_done_callback(_closing.discard)

    def _sweep(self) -> None:
        """Give up what waited too long; those that came first are in front."""
        entries, now = self.entries, self._loop.time()
        if not self._producer.attached:
            self._away_at = now
        while entries and (entries[0].told is None or entries[0].deadline <= now):
            entry = entries.popleft()
            if entry.told is not None:
                words = f"{self.log} did not take it within {self._limits.wait_s:g} s"
                entry.give_up(self._pushed_back(words, entry.deadline - self._limits.wait_s))
        self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep) if entries else None

    def _pushed_back(self, words: str, since: float | None = None) -> OverloadedError | UnavailableError:
        """If the link existed all the time since then, the node delays us; if not, the node cannot be reached.

        If the node said why it stores nothing (a full disk), this is its sentence: sending less does not help.
        """
        obstacle = self._producer.obstacle
        if isinstance(obstacle, ReleasedError):
            self._warn(str(obstacle))
            return UnavailableError(f"{words}: the event log node says: {obstacle}")
        there = self._producer.attached and (since is None or self._away_at < since)
        return OverloadedError(words) if there else UnavailableError(f"{words}: the event log node is away")

    def _warn(self, reason: str) -> None:
        """Log at most now and then: each refused event would be a line."""
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
    with suppress(AmqpStreamsError):  # whoever waited for an event was told
        await producer.close(timeout=1.0)


def _explained(error: AmqpStreamsError) -> GatewayError:
    """What an outcome other than accepted means to whoever sent the event."""
    if isinstance(error, RejectedError) and error.condition == _TOO_LARGE:
        return TooLargeError(f"the log cannot store this event: {error.description}")
    if isinstance(error, RejectedError) and error.condition in _NEVER:
        return BadRequestError(f"the log cannot store this event: {error.description}")
    return UnavailableError(f"the log did not store it: {error}")
