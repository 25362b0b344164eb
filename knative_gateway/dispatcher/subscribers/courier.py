"""[io] One subscriber: how many events are on their way to it, and each one's way to its end.

Laws: requests under way never exceed what congestion control, rate and the subscriber's own bound allow; retries go before new events; an
event is completed when its plan is done, and then only. While paused nothing begins, and nothing that began is cut off.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, cast

import structlog

from knative_gateway.delivery import Action, Answer, Attempt, Congestion, Done, End, Plan, Post, Store, To, Wait, overloaded
from knative_gateway.delivery.backoff import spread_ms
from knative_gateway.delivery.congestion import LIMIT_MAX
from knative_gateway.delivery.rate import rate_of
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.dispatcher.figures import Figures
from knative_gateway.dispatcher.subscribers.flight import Flight
from knative_gateway.dispatcher.subscribers.recording import Outside, Recording
from knative_gateway.dispatcher.subscribers.redriving import Again, Place
from knative_gateway.dispatcher.subscribers.seams import fault, judged, rendered, stored
from knative_gateway.dispatcher.subscribers.track import Track
from knative_gateway.dispatcher.subscribers.turns import Turns
from knative_gateway.filters import compile_filters
from knative_gateway.ports import Subscriber

log = structlog.get_logger(__name__)

_FAULT_WAIT_S: Final = 1.0
_FAULTS_MAX: Final = 3

ReadPlace = Callable[[Place], Awaitable[Arrival | None]]
"""Reads one event of the log; None: it is not there."""


class Courier(Recording):
    """Brings one subscriber its events."""

    def __init__(self, spec: Subscriber, outside: Outside, figures: Figures) -> None:
        """`figures` go on counting. Raises FilterError for filters that should not have come so far."""
        super().__init__(spec, outside, figures)
        self.tracks: Final[dict[int, Track]] = {}
        self.again: Final = Again()
        self.turns: Final = Turns()
        self.held_bytes = 0
        self.room: Final = asyncio.Event()
        self.running: Final = asyncio.Event()
        self._loop: Final = asyncio.get_running_loop()
        self._flights: Final[set[Flight]] = set()
        self._tasks: Final[dict[asyncio.Task[None], Track | Again]] = {}
        self._resuming: Final[deque[asyncio.Future[None]]] = deque()
        self._sleeping: Final[set[asyncio.Future[None]]] = set()
        self._later: asyncio.TimerHandle | None = None
        self._idle: Final[set[asyncio.Task[None]]] = set()
        self._released: Final[set[Track | Again]] = set()
        self._redriving: asyncio.Task[None] | None = None
        self._stopping = False
        self._congestion = Congestion(self._in_flight_max(spec))
        self._rate = rate_of(spec.per_second_max)
        if not spec.paused:
            self.running.set()

    # -- what others do to it

    def update(self, spec: Subscriber) -> None:
        """Go on by another specification of the same subscriber. What waits for a retry starts anew if it goes elsewhere or otherwise."""
        if spec.filters != self.spec.filters:
            self.filters = compile_filters(spec.filters)
        before, self.spec = self.spec, spec
        if spec.in_flight_max != before.in_flight_max:
            self._congestion = Congestion(self._in_flight_max(spec))
        if spec.per_second_max != before.per_second_max:
            self._rate = rate_of(spec.per_second_max)
        if _errand(spec) != _errand(before):
            for sleeping in self._sleeping:
                _wake(sleeping)
        if spec.paused:
            self.running.clear()
        else:
            self.running.set()
        self.pump()

    def pump(self) -> None:
        """Begin what may begin."""
        while self.running.is_set() and not self._stopping and self.figures.in_flight < self._congestion.limit:
            while self._resuming and self._resuming[0].done():
                self._resuming.popleft()
            track = None if self._resuming or self.figures.waiting >= self.outside.settings.waiting_max else self.turns.next()
            if track is None and not self._resuming:
                return
            if self._rate is not None and not self._rate.take(self._clock_ms()):
                if self._later is None:
                    self._later = self._loop.call_later(self._rate.wait_ms(self._clock_ms()) / 1000, self._pump_later)
                return
            self.figures.in_flight += 1
            if track is None:
                self._resuming.popleft().set_result(None)
            else:
                self._begin(track)
                self.turns.taken(track)

    async def stop(self, drain_s: float) -> None:
        """Begin nothing more, wait so long for answers, and let go of the rest: it comes again from the checkpoint."""
        self._stopping = True
        self.say_rest()
        if self._later is not None:
            self._later.cancel()
        await self._let_go(None, drain_s)

    async def release(self, partition: int, drain_s: float) -> Track:
        """The same for one partition, which is another's now."""
        track = self.tracks.pop(partition)
        self._released.add(track)
        await track.close()
        await self._let_go(track, drain_s)
        self._released.discard(track)
        self.held_bytes -= track.held_bytes
        self.room.set()
        return track

    async def _let_go(self, of: Track | None, drain_s: float) -> None:
        """Of what is under way (of one partition), wait for answers and drop the rest."""
        latest = self._loop.time() + drain_s
        for task in self._tasks_of(of):
            if task in self._idle:
                task.cancel()
        while left := [*self._tasks_of(of), *(flight.landing() for flight in self._flights_of(of))]:
            await asyncio.wait(left, timeout=max(0.0, latest - self._loop.time()))
            if self._loop.time() >= latest:
                break
        for flight in self._flights_of(of):
            self._take_off(flight)
            flight.drop()
        tasks = self._tasks_of(of)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _tasks_of(self, track: Track | None) -> list[asyncio.Task[None]]:
        return [task for task, of in self._tasks.items() if track is None or of is track]

    def _flights_of(self, track: Track | None) -> list[Flight]:
        return [flight for flight in self._flights if track is None or flight.track is track]

    def redrive(self, places: Sequence[Place], read: ReadPlace) -> None:
        """Deliver these, whatever became of them before. `read` reads one of them, when there is room."""
        if self.again.want(places) and not self._stopping and (self._redriving is None or self._redriving.done()):
            self._redriving = task = self._loop.create_task(self._redrive(read))
            self._tasks[task] = self.again
            self._idle.add(task)  # a stop does not wait for it
            task.add_done_callback(self._idle.discard)
            task.add_done_callback(self._tasks.pop)

    async def _redrive(self, read: ReadPlace) -> None:
        while (place := self.again.next()) is not None:
            arrival = None
            try:
                async with self.outside.reading:
                    arrival = await read(place)
            except Exception:
                log.exception("event_not_redriven", subscriber=self.spec.uid, partition=place[0], offset=place[1])
            if arrival is None:
                self.again.leave_out(place)
                continue
            while not self.again.has_room(arrival.size, self.outside.settings.held_bytes_max):
                self.room.clear()
                await self.room.wait()
            self.again.add(arrival)
            self.turns.stir(self.again)
            self.pump()

    # -- one event

    def _begin(self, track: Track | Again) -> None:
        flight = Flight(self, track, *track.take())
        try:
            flies = flight.begin()
        except Exception:
            log.exception("delivery_fault", subscriber=self.spec.uid, partition=flight.arrival.partition, offset=flight.arrival.offset)
            flies = False
        if flies:
            self._flights.add(flight)
        else:
            self._carry_later(flight, None)

    def landed(self, flight: Flight, elapsed_ms: int) -> None:
        """The subscriber took it, at the first attempt."""
        figures, arrival = self.figures, flight.arrival
        figures.request.note(elapsed_ms)
        self._congestion.succeeded(elapsed_ms, figures.in_flight)
        self._take_off(flight)
        figures.end_to_end.note(self.age_ms(arrival))
        figures.delivered += 1
        flight.track.complete(flight.entry, arrival)
        self.room.set()
        self.pump()

    def carry_on(self, flight: Flight, answer: Answer | None) -> None:
        """Anything else came of it: the long way goes on from this answer, or begins when there was none."""
        self._take_off(flight)
        self.figures.in_flight += 1
        self._carry_later(flight, answer)

    def _take_off(self, flight: Flight) -> None:
        self._flights.remove(flight)
        self.figures.in_flight -= 1
        flight.end()

    def _carry_later(self, flight: Flight, answer: Answer | None) -> None:
        task = self._loop.create_task(self._carry(flight, answer))
        self._tasks[task] = flight.track
        task.add_done_callback(self._tasks.pop)

    async def _carry(self, flight: Flight, answer: Answer | None) -> None:
        arrival, faults = flight.arrival, 0
        spec = self.spec if answer is None else flight.spec
        while True:
            try:
                done = await self._errand(spec, arrival, answer)
                break
            except Exception as error:
                # A fault of ours must not hold up the events behind this one.
                faults += 1
                spec, answer = self.spec, None
                log.exception("delivery_fault", subscriber=self.spec.uid, partition=arrival.partition, offset=arrival.offset)
                fault = Attempt(To.SUBSCRIBER, "", faults, self.outside.now_ms(), None, f"internal error: {error!r}", b"", retryable=True)
                self.history.note(self.outside.now_ms(), arrival, fault, "" if faults < _FAULTS_MAX else End.DROPPED)
                if faults == _FAULTS_MAX:
                    self.gave_up(End.DROPPED, fault.reason)
                    done = None
                    break
                await asyncio.sleep(_FAULT_WAIT_S)
                self.figures.in_flight += 1
            finally:
                self.figures.in_flight -= 1
        if done is not None:
            self.ended(arrival, done)
        flight.track.complete(flight.entry, arrival)
        self.room.set()
        self.pump()

    async def _errand(self, spec: Subscriber, arrival: Arrival, answer: Answer | None) -> Done:
        """Carry out a plan until it is done; one slot of the in-flight is ours at the beginning and at the end.

        `answer`: to the first POST, where that was sent already.
        """
        assert arrival.event is not None
        plan = Plan(spec, arrival.event, self._spread)
        action = plan.start()
        if answer is not None:
            self._learn(answer)
            action = self._after(judged(plan, answer, self._clock_ms()), plan, arrival)
        while not isinstance(action, Done):
            if isinstance(action, Post):
                action = judged(plan, await self._posted(action, arrival), self._clock_ms())
            elif isinstance(action, Store):
                problem = await stored(action, self.outside.log, self.outside.now_ms)
                self.figures.replied += problem is None
                action = plan.stored(problem, self._clock_ms())
            else:
                await self._wait(action)
                if _errand(self.spec) != _errand(plan.subscriber):
                    plan = Plan(self.spec, arrival.event, self._spread)
                    action = plan.start()
                else:
                    action = plan.resumed()
            action = self._after(action, plan, arrival)
        return action

    async def _posted(self, post: Post, arrival: Arrival) -> Answer:
        """The answer; a fault of ours is an attempt that failed, so that retries and the dead letter sink follow."""
        try:
            return await self._post(post, arrival)
        except Exception as error:
            log.exception("delivery_fault", subscriber=self.spec.uid, partition=arrival.partition, offset=arrival.offset)
            return fault(error, self.outside.now_ms())

    def _after(self, action: Action, plan: Plan, arrival: Arrival) -> Action:
        """What is next; if the last thing failed it is noted."""
        if plan.failure is not None:
            self.figures.failed_attempts += 1
            self.history.note(self.outside.now_ms(), arrival, plan.failure)
        return action

    async def _post(self, post: Post, arrival: Arrival, trace: Sequence[tuple[str, str]] | None = None) -> Answer:
        headers, body = rendered(post, arrival, self.spec, trace)
        answer = await self.outside.sender.post(
            post.url,
            headers,
            body,
            timeout_ms=post.timeout_ms,
            reply_wanted=post.reply_wanted,
            owner=self.spec.uid,
            namespace=self.spec.namespace,
        )
        if post.to is To.SUBSCRIBER:
            self._learn(answer)
            self.figures.retried += post.attempt > 1
        return answer

    def _learn(self, answer: Answer) -> None:
        """What the answer says of how much the subscriber bears."""
        self.figures.request.note(answer.elapsed_ms)
        if overloaded(answer):
            overload = self._congestion.silent if answer.status is None else self._congestion.overloaded
            overload(self._clock_ms())
        else:
            self._congestion.succeeded(answer.elapsed_ms, self.figures.in_flight)

    async def _wait(self, wait: Wait) -> None:
        """Without a slot, so that others go on; then in front of those that have not begun."""
        task = cast("asyncio.Task[None]", asyncio.current_task())
        if self._stopping or self._tasks[task] in self._released:
            raise asyncio.CancelledError
        figures = self.figures
        figures.in_flight -= 1
        figures.waiting += 1
        self._idle.add(task)
        try:
            self.pump()
            await self._sleep(wait.until_ms)
            turn: asyncio.Future[None] = self._loop.create_future()
            self._resuming.append(turn)
            self.pump()
            await turn
        except BaseException:
            figures.in_flight += 1  # whoever began this errand gives the slot back
            raise
        finally:
            figures.waiting -= 1
            self._idle.discard(task)

    async def _sleep(self, until_ms: int) -> None:
        """Until then, or until it is known that something changed."""
        pause: asyncio.Future[None] = self._loop.create_future()
        handle = self._loop.call_later(max(0, until_ms - self._clock_ms()) / 1000, _wake, pause)
        self._sleeping.add(pause)
        try:
            await pause
        finally:
            handle.cancel()
            self._sleeping.discard(pause)

    # -- small ones

    def _pump_later(self) -> None:
        self._later = None
        self.pump()

    def _in_flight_max(self, spec: Subscriber) -> int:
        return min(spec.in_flight_max or self.outside.settings.in_flight_max, LIMIT_MAX)

    def _spread(self, wait: int) -> int:
        jitter = self.outside.settings.jitter
        return spread_ms(wait, jitter, self.outside.chance()) if jitter else wait

    def _clock_ms(self) -> int:
        return int(self._loop.time() * 1000)


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _errand(spec: Subscriber) -> tuple[object, ...]:
    """What a plan is made by."""
    return (spec.subscriber_url, spec.reply_log, spec.reply_url, spec.delivery)
