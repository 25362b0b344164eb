"""[io] When deliveries to one subscriber begin.

The requests in flight do not exceed the limits of congestion control, rate and subscriber. Retries go before
new events. While the subscriber is paused, nothing begins; deliveries in flight continue.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from knative_gateway.delivery import Answer, Congestion, overloaded
from knative_gateway.delivery.congestion import LIMIT_MAX
from knative_gateway.delivery.rate import rate_of
from knative_gateway.dispatcher.subscribers.round_robin import RoundRobin
from knative_gateway.dispatcher.subscribers.source import Source
from knative_gateway.dispatcher.subscribers.state import SubscriberState
from knative_gateway.ports import Subscriber


class Scheduler:
    """`round_robin`: the sources with an event to begin. `stopped`: nothing begins any more."""

    def __init__(self, state: SubscriberState, begin: Callable[[Source], None]) -> None:
        """`begin` is called to send the next event of a source.

        Its request is already counted as in flight.
        """
        self.round_robin: Final = RoundRobin()
        self.stopped = False
        self._state: Final = state
        self._figures: Final = state.figures
        self._begin: Final = begin
        self._loop: Final = asyncio.get_running_loop()
        self._resuming: Final[deque[asyncio.Future[None]]] = deque()
        self._sleeping: Final[set[asyncio.Future[None]]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._congestion = Congestion(self._in_flight_max(state.spec))
        self._rate = rate_of(state.spec.per_second_max)

    def update(self, before: Subscriber) -> None:
        """Use the limits of the new specification. `before`: the former specification."""
        spec = self._state.spec
        # Otherwise the limit that was learnt stays: most changes of a Trigger say nothing about the speed of
        # its subscriber.
        if spec.in_flight_max != before.in_flight_max:
            self._congestion = Congestion(self._in_flight_max(spec))
        if spec.per_second_max != before.per_second_max:
            self._rate = rate_of(spec.per_second_max)
        self.pump()

    def ready(self, source: Source) -> None:
        """Add a source that may have an event to begin, and begin what may begin."""
        self.round_robin.wake(source)
        self.pump()

    def pump(self) -> None:
        """Begin all deliveries that may begin.

        Called after every change that may allow one more delivery, so it must be cheap.
        """
        state, figures, sources = self._state, self._figures, self.round_robin.sources
        # First what is false at the end of nearly every call.
        while (
            (sources or self._resuming)
            and state.running.is_set()
            and not self.stopped
            and figures.in_flight < self._congestion.limit
        ):
            # Cancelled deliveries leave their futures behind.
            while self._resuming and self._resuming[0].done():
                self._resuming.popleft()
            # Retries go first. Too many waiting events stop new ones, which might fail and wait, too.
            is_full = bool(self._resuming) or figures.waiting >= state.context.settings.waiting_max
            source = None if is_full else self.round_robin.next()
            if source is None and not self._resuming:
                return
            # The token is taken last, when the delivery can really begin.
            if self._rate is not None and not self._rate.take(self.clock_ms()):
                if self._timer is None:
                    wait_s = self._rate.wait_ms(self.clock_ms()) / 1000
                    self._timer = self._loop.call_later(wait_s, self._pump_later)
                return
            figures.in_flight += 1
            if source is None:
                self._resuming.popleft().set_result(None)
            else:
                self._begin(source)
                # After the event was taken: `taken` looks whether the source has another one, and puts it
                # behind the others.
                self.round_robin.taken(source)

    def stop(self) -> None:
        """Begin nothing more."""
        self.stopped = True
        if self._timer is not None:
            self._timer.cancel()

    async def pause(self, until_ms: int) -> None:
        """Give up the slot of a delivery, wait until `until_ms`, and get a slot again before new events do.

        The delivery has its slot again when this method returns, and also when it raises.
        """
        figures = self._figures
        figures.in_flight -= 1
        figures.waiting += 1
        try:
            self.pump()
            await self._sleep(until_ms)
            turn: asyncio.Future[None] = self._loop.create_future()
            self._resuming.append(turn)
            self.pump()
            await turn
        except BaseException:
            figures.in_flight += 1  # the delivery gives the slot back when it ends
            raise
        finally:
            figures.waiting -= 1

    def wake_sleeping(self) -> None:
        """End all waits for retries, because the destination or its delivery options changed."""
        for sleeping in self._sleeping:
            _wake(sleeping)

    def accepted(self, elapsed_ms: int) -> None:
        """Adapt the limit of requests in flight to an event that the subscriber accepted."""
        self._figures.request.note(elapsed_ms)
        self._congestion.succeeded(elapsed_ms, self._figures.in_flight)

    def answered(self, answer: Answer) -> None:
        """Adapt the limit of requests in flight to an answer, or to a missing answer."""
        if not overloaded(answer):
            self.accepted(answer.elapsed_ms)
            return
        self._figures.request.note(answer.elapsed_ms)
        if answer.status is None:
            self._congestion.silent(self.clock_ms())
        else:
            self._congestion.overloaded(self.clock_ms())

    def clock_ms(self) -> int:
        """Return milliseconds of a clock that never goes back."""
        return int(self._loop.time() * 1000)

    async def _sleep(self, until_ms: int) -> None:
        """Wait until `until_ms`, or until `wake_sleeping`."""
        pause: asyncio.Future[None] = self._loop.create_future()
        handle = self._loop.call_later(max(0, until_ms - self.clock_ms()) / 1000, _wake, pause)
        self._sleeping.add(pause)
        try:
            await pause
        finally:
            handle.cancel()
            self._sleeping.discard(pause)

    def _pump_later(self) -> None:
        self._timer = None
        self.pump()

    def _in_flight_max(self, spec: Subscriber) -> int:
        return min(spec.in_flight_max or self._state.context.settings.in_flight_max, LIMIT_MAX)


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
