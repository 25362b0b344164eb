"""[io] The dispatcher of one subscriber: it carries out deliveries from beginning to end.

Each event that is taken from a source is completed once, or is dropped together with its source. An internal
error costs at most one event. A stop waits for answers; deliveries that have not ended then are repeated from
the stored cursor.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, cast

import structlog

from knative_gateway.delivery import Answer, Attempt, Done, End, To
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.dispatcher.context import DispatchContext
from knative_gateway.dispatcher.figures import Figures
from knative_gateway.dispatcher.history import History
from knative_gateway.dispatcher.subscribers.first_attempt import FirstAttempt
from knative_gateway.dispatcher.subscribers.partition import SubscriberPartition
from knative_gateway.dispatcher.subscribers.planned import PlannedDelivery, delivery_options
from knative_gateway.dispatcher.subscribers.redriving import Listed, Redrive
from knative_gateway.dispatcher.subscribers.scheduling import Scheduler
from knative_gateway.dispatcher.subscribers.source import Source
from knative_gateway.dispatcher.subscribers.state import SubscriberState
from knative_gateway.offsets import offset_number
from knative_gateway.ports import Range, Subscriber

log = structlog.get_logger(__name__)

_RETRY_S: Final = 1.0
_FAULTS_MAX: Final = 3
"""Internal errors of one delivery after which the event is dropped."""

ReadOne = Callable[[Listed], Awaitable[Arrival | None]]
"""Reads one event of the log; None if the event was removed."""


class SubscriberDispatcher:
    """Delivers the events of all partitions that this gateway owns to one subscriber."""

    def __init__(
        self, spec: Subscriber, context: DispatchContext, figures: Figures, history: History | None = None
    ) -> None:
        """`figures`: counters, which continue from their values. `history`: of a predecessor, if any.

        Raises:
            FilterError: see `SubscriberState`.
        """
        self.state: Final = SubscriberState(spec, context, figures, history)
        self.figures: Final = figures
        self.history: Final = self.state.history
        self.partitions: Final[dict[int, SubscriberPartition]] = {}
        self.scheduler: Final = Scheduler(self.state, self._begin)
        self.redrives: Final = Redrive(context.settings.held_bytes_max)
        self._context: Final = context
        self._loop: Final = asyncio.get_running_loop()
        self._first_attempts: Final[set[FirstAttempt]] = set()
        self._tasks: Final[dict[asyncio.Task[None], Source]] = {}
        self._idle: Final[set[asyncio.Task[None]]] = set()
        self._released: Final[set[Source]] = set()
        self._redriving: asyncio.Task[None] | None = None

    @property
    def spec(self) -> Subscriber:
        """The current specification of the subscriber."""
        return self.state.spec

    # -- called by the route's worker

    def update(self, spec: Subscriber) -> None:
        """Use a new specification of the same subscriber.

        Deliveries that wait for a retry begin again if their destination or delivery options changed.
        """
        before = self.spec
        self.state.update(spec)
        if delivery_options(spec) != delivery_options(before):
            self.scheduler.wake_sleeping()
        self.scheduler.update(before)

    def add(self, partition: int, start: str, completed: Sequence[Range]) -> SubscriberPartition:
        """Deliver a partition from the position `start`. `completed`: ranges above it whose events are
        skipped.
        """
        made = SubscriberPartition(self.state, partition, start, completed, self.scheduler.ready)
        self.partitions[partition] = made
        return made

    def close(self, partition: SubscriberPartition) -> None:
        """Begin no more events of a partition."""
        partition.close()
        self.scheduler.round_robin.leave(partition)

    def remove(self, partition: int) -> SubscriberPartition:
        """Close a partition that another replica owns now. Call `release` afterwards."""
        removed = self.partitions.pop(partition)
        self._released.add(removed)
        self.close(removed)
        return removed

    async def release(self, partition: SubscriberPartition, drain_s: float) -> None:
        """Wait up to `drain_s` for answers in a removed partition, and drop the other deliveries: the new
        owner repeats them.
        """
        await self._drop(partition, drain_s)
        self._released.discard(partition)
        partition.drop()
        # The dropped deliveries gave their slots back. No answer will come that begins the next delivery.
        self.scheduler.pump()

    async def stop(self, drain_s: float) -> None:
        """Begin no more deliveries, wait up to `drain_s` for answers, and drop the other deliveries.

        Dropped deliveries are repeated from the stored cursor.
        """
        self.scheduler.stop()
        self.state.report_rest()
        await self._drop(None, drain_s)

    async def _drop(self, source: Source | None, drain_s: float) -> None:
        """Wait for the answers of a source's deliveries, and drop those that have not ended. `source` None:
        all sources.
        """
        latest = self._loop.time() + drain_s
        # Deliveries that only wait for a retry are cancelled at once: no answer is expected.
        for task in self._tasks_of(source):
            if task in self._idle:
                task.cancel()
        while left := [*self._tasks_of(source), *(each.ended() for each in self._attempts_of(source))]:
            ended, _ = await asyncio.wait(left, timeout=max(0.0, latest - self._loop.time()))
            if not ended:  # by the clock, less than its resolution may be left: the loop would spin
                break
        for attempt in self._attempts_of(source):
            self._end(attempt)
            attempt.drop()
        tasks = self._tasks_of(source)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _tasks_of(self, source: Source | None) -> list[asyncio.Task[None]]:
        return [task for task, of in self._tasks.items() if source is None or of is source]

    def _attempts_of(self, source: Source | None) -> list[FirstAttempt]:
        return [attempt for attempt in self._first_attempts if source is None or attempt.source is source]

    # -- redrive

    def redrive(self, events: Sequence[Listed], read: ReadOne) -> None:
        """Deliver these events again, no matter how they ended. `read` is called for one event at a time."""
        # One task serves all requests for a redrive. Events that a second request adds are read by the first
        # task.
        if not self.redrives.want(events) or self.scheduler.stopped:
            return
        if self._redriving is None or self._redriving.done():
            self._redriving = task = self._loop.create_task(self._redrive(read))
            self._tasks[task] = self.redrives
            self._idle.add(task)  # a stop does not wait for it
            task.add_done_callback(self._idle.discard)
            task.add_done_callback(self._tasks.pop)

    def cancel_redrive(self) -> int:
        """Deliver none of the events of a redrive whose delivery has not begun. Returns their number."""
        count = self.redrives.cancel()
        self.scheduler.round_robin.leave(self.redrives)
        return count

    async def _redrive(self, read: ReadOne) -> None:
        while (event := self.redrives.next()) is not None:
            arrival = None
            try:
                async with self._context.reading:
                    arrival = await read(event)
            except Exception:
                log.exception(
                    "event_not_redriven",
                    subscriber=self.spec.uid,
                    partition=event.partition,
                    offset=offset_number(event[1]),
                )
            if arrival is None:
                self.redrives.give_up(event)
                continue
            # Back-pressure: the other events stay in the log until deliveries have ended.
            while not self.redrives.held.has_room(arrival.size):
                await self.redrives.held.wait()
            if self.redrives.is_wanted(event):
                self.redrives.add(event, arrival)
                self.scheduler.ready(self.redrives)

    # -- one event

    def _begin(self, source: Source) -> None:
        attempt = FirstAttempt(self, self.spec, source)
        is_sent = False
        try:
            # A plan makes the spans, so that a first attempt without traces does not pay for them.
            is_sent = not self._context.settings.tracer.enabled and attempt.begin(self._context.sender)
        except Exception:
            log.exception("delivery_fault", subscriber=self.spec.uid, **attempt.arrival.where)
        if is_sent:
            self._first_attempts.add(attempt)
        else:
            self._deliver_later(attempt, None)

    def accepted(self, attempt: FirstAttempt, elapsed_ms: int) -> None:
        """Called by the attempt: the delivery is completed."""
        # Before `_end`: congestion control compares the limit with the requests that were in flight with this
        # one.
        self.scheduler.accepted(elapsed_ms)
        self._end(attempt)
        self.state.accepted(attempt.arrival, elapsed_ms)
        self._complete(attempt)

    def unfinished(self, attempt: FirstAttempt, answer: Answer | None) -> None:
        """Called by the attempt: the delivery keeps its slot, and a plan continues from the answer."""
        self._end(attempt)
        self.figures.in_flight += 1
        self._deliver_later(attempt, answer)

    def _end(self, attempt: FirstAttempt) -> None:
        self._first_attempts.remove(attempt)
        self.figures.in_flight -= 1
        attempt.end()

    def _complete(self, attempt: FirstAttempt) -> None:
        source = attempt.source
        source.complete(attempt.entry)
        # A closed source begins nothing more. Its position was stored for the last time.
        if not source.closed:
            self.scheduler.round_robin.wake(source)
        self.scheduler.pump()

    def _deliver_later(self, attempt: FirstAttempt, answer: Answer | None) -> None:
        task = self._loop.create_task(self._deliver(attempt, answer))
        self._tasks[task] = attempt.source
        task.add_done_callback(self._tasks.pop)

    async def _deliver(self, attempt: FirstAttempt, answer: Answer | None) -> None:
        """Carry out a delivery with a plan. An internal error must not block the events behind this one."""
        arrival, faults = attempt.arrival, 0
        # An answer belongs to the destination that gave it, even if the Trigger was changed in the meantime.
        spec = self.spec if answer is None else attempt.spec
        delivery = PlannedDelivery(self.state, self.scheduler, arrival, partial(self._pause, attempt.source))
        done: Done | None = None
        while done is None and faults < _FAULTS_MAX:
            if faults:
                await asyncio.sleep(_RETRY_S)
                self.figures.in_flight += 1
            try:
                done = await delivery.run(spec, answer)
            except Exception as error:
                faults += 1
                # After an internal error nothing is assumed about the subscriber: the delivery begins again
                # with a new request.
                spec, answer = self.spec, None
                log.exception("delivery_fault", subscriber=self.spec.uid, **arrival.where)
                self._record_fault(arrival, error, faults)
            finally:
                self.figures.in_flight -= 1
        if done is not None:
            self.state.ended(arrival, done)
        self._complete(attempt)

    def _record_fault(self, arrival: Arrival, error: Exception, faults: int) -> None:
        reason, now_ms = f"internal error: {error!r}", self._context.now_ms()
        is_last = faults == _FAULTS_MAX
        failure = Attempt(To.SUBSCRIBER, "", faults, now_ms, None, reason, b"", retryable=True)
        self.history.note(now_ms, arrival, failure, End.DROPPED if is_last else "")
        if is_last:
            self.state.gave_up(End.DROPPED, reason)

    async def _pause(self, source: Source, until_ms: int) -> None:
        """Wait for a retry. A stop or a release does not wait for such deliveries: it cancels them."""
        if self.scheduler.stopped or source in self._released:
            # The event is not completed, so its position does not move, and it is delivered again from the
            # stored cursor.
            raise asyncio.CancelledError
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._idle.add(task)
        try:
            await self.scheduler.pause(until_ms)
        finally:
            self._idle.discard(task)
