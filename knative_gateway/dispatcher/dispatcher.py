"""[io] All routes: one worker each, and the keeping of everybody's places.

Laws: what is completed is durable as such within `flush_ms`, so that a crash brings back little; a stop waits for answers, then keeps all
places. `applied` tells what is served, and never more.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Final, Self

import structlog

from knative_gateway.delivery import End
from knative_gateway.dispatcher import history, positions
from knative_gateway.dispatcher.figures import NO_LAG, Lag
from knative_gateway.dispatcher.ownership import Alone, Ownership
from knative_gateway.dispatcher.places import INCARNATION, after_offsets, after_time, asked_for, ends_of
from knative_gateway.dispatcher.posting.connecting import Connections
from knative_gateway.dispatcher.posting.sending import Sender
from knative_gateway.dispatcher.settings import DispatchSettings
from knative_gateway.dispatcher.subscribers.courier import Courier
from knative_gateway.dispatcher.subscribers.recording import Outside
from knative_gateway.dispatcher.subscribers.redriving import places_in, stored_at
from knative_gateway.dispatcher.subscribers.track import Track
from knative_gateway.dispatcher.worker import RouteWorker, keep
from knative_gateway.errors import GatewayError
from knative_gateway.ports import Checkpoints, EventLog, Range, Route, Routes
from knative_gateway.running.supervising import Supervisor

_AGAIN_S: Final = 1.0
"""After positions could not be kept."""
_HISTORY_TURNS: Final = 5
"""Flushes of positions for one of histories, which nobody waits for."""

log = structlog.get_logger(__name__)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def _told(event: str) -> Iterator[None]:
    """What fails is told of, and tried again by the next turn: places are kept as long as the process lives."""
    try:
        yield
    except GatewayError as error:
        log.warning(event, reason=str(error))
    except Exception:
        log.exception(event)


class Dispatcher:
    """Pushes the events of all routes to their subscribers. Use with `async with`; tell it what to serve by `use`.

    `ownership`: of the partitions, None: all are ours. `changed` is called with a path whenever it is served otherwise than before.
    """

    def __init__(
        self,
        events: EventLog,
        checkpoints: Checkpoints,
        sender: Sender,
        settings: DispatchSettings | None = None,
        *,
        ownership: Ownership | None = None,
        changed: Callable[[str], None] = lambda _path: None,
        now_ms: Callable[[], int] = _wall_ms,
        chance: Callable[[], float] = random.random,
        tasks: Supervisor | None = None,
    ) -> None:
        self.settings: Final = settings or DispatchSettings()
        self.workers: Final[dict[str, RouteWorker]] = {}
        self._outside: Final = Outside(sender, events, self.settings, now_ms, chance, asyncio.Semaphore(self.settings.readers_max))
        self._checkpoints: Final = checkpoints
        self._ownership: Final = ownership or Alone()
        self._replicated: Final = ownership is not None
        self._changed: Final = changed
        self._supervisor: Final = tasks or Supervisor()
        self._routes = Routes(0, {})
        self._closing: Final[set[asyncio.Task[None]]] = set()
        self._flushing: Final = asyncio.Lock()
        self._always: list[asyncio.Task[None]] = []
        self._kept_s = time.monotonic()

    async def __aenter__(self) -> Self:
        run = self._supervisor.keep
        self._always = [
            run("dispatcher.flush", self._flush_always),
            run("dispatcher.histories", self._keep_histories_always),
            run("dispatcher.look", self._look_always),
        ]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Begin nothing more, wait for answers for `drain_s`, keep all places."""
        for task in self._always:
            task.cancel()
        await asyncio.gather(*self._always, return_exceptions=True)
        workers = list(self.workers.values())
        self.workers.clear()
        ended = await asyncio.gather(*(worker.end(self.settings.drain_s) for worker in workers))
        # Before the partitions are left to other replicas, which go on from there.
        await keep([courier for couriers in ended for courier in couriers], self._checkpoints)
        await asyncio.gather(*(worker.leave() for worker in workers), *self._closing)

    # -- what is served

    def use(self, routes: Routes) -> None:
        """Serve these from now on; returns at once."""
        self._routes = routes
        wanted: dict[str, Route] = {route.uid: route for route in routes.by_path.values()}
        for uid in self.workers.keys() - wanted.keys():
            self._close_later(self.workers.pop(uid))
        for uid, route in wanted.items():
            worker = self.workers.get(uid)
            if worker is None:
                self.workers[uid] = RouteWorker(
                    route, self._outside, self._checkpoints, self._ownership, partial(self._changed, route.path)
                )
            elif worker.wanted != route:
                worker.use(route)

    @property
    def applied(self) -> Routes:
        """What is served now: a route is missing until it is, and is the former one until it is the new one."""
        served = (worker.served for worker in self.workers.values())
        return Routes(self._routes.version, {route.path: route for route in served if route is not None})

    def served(self, path: str) -> Route | None:
        """A route as it is served now."""
        worker = self._at(path)
        return None if worker is None else worker.served

    def failing_at(self, path: str) -> Mapping[str, str]:
        """Subscribers of a route that could not be set up, by uid, and why; they are tried again."""
        worker = self._at(path)
        return {} if worker is None else worker.failing

    def _at(self, path: str) -> RouteWorker | None:
        route = self._routes.by_path.get(path)
        return None if route is None else self.workers.get(route.uid)

    @property
    def failing(self) -> Mapping[str, str]:
        """Subscribers that could not be set up, by uid, and why; they are tried again."""
        return {uid: reason for worker in self.workers.values() for uid, reason in worker.failing.items()}

    def courier(self, uid: str) -> Courier | None:
        """The one of a subscriber."""
        return next((worker.couriers[uid] for worker in self.workers.values() if uid in worker.couriers), None)

    def subscribers(self) -> Iterator[tuple[str, Courier, Lag]]:
        """All that are served: the name of the Broker or Channel, who brings the events, and how far it is behind."""
        now_ms = self._outside.now_ms()
        for worker in list(self.workers.values()):  # copies: `/metrics` is made beside the event loop
            for courier in list(worker.couriers.values()):
                yield worker.wanted.name, courier, worker.lag(courier, now_ms)

    @property
    def connections(self) -> Connections:
        """All connections to subscribers."""
        return self._outside.sender.connections

    def lag(self, uid: str) -> Lag:
        """How far a subscriber is behind."""
        now_ms = self._outside.now_ms()
        found = ((worker, worker.couriers[uid]) for worker in self.workers.values() if uid in worker.couriers)
        return next((worker.lag(courier, now_ms) for worker, courier in found), NO_LAG)

    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """What was counted of all subscribers, by uid."""
        return {courier.spec.uid: {**courier.figures.counters(), "lag": lag.events} for _, courier, lag in self.subscribers()}

    def figures(self, uid: str) -> Mapping[str, int]:
        """What was counted of a subscriber."""
        courier = self.courier(uid)
        return {} if courier is None else {**courier.figures.counters(), "lag": self.lag(uid).events}

    # -- again

    async def replay(self, uid: str, to: Mapping[int, str]) -> None:
        """Make a subscriber go back or forth to these places (as `places.after_offsets` or `places.after_time` have them).

        Raises:
            KeyError: it is not served here.
            UnavailableError: log or store are away; it goes on from where it was.
        """
        # No flush meanwhile: it would have where the subscriber was.
        async with self._flushing:
            await self._worker(uid).replay(uid, to)

    async def replay_from_time(self, uid: str, at_ms: int) -> None:
        """The same to what was stored at that time (since 1970 UTC) or later."""
        await self.replay(uid, await after_time(self._worker(uid).wanted.log, at_ms, self._outside.log))

    async def replay_from_offsets(self, uid: str, offsets: str) -> None:
        """The same to PARTITION=OFFSET,…: the next is the first after each; other partitions go on from where they are.

        Raises:
            ValueError: the log does not have one of these partitions.
        """
        ends = await ends_of(self._worker(uid).wanted.log, self._outside.log)
        missing = sorted(positions.given(offsets).keys() - ends.keys())
        if missing:
            message = f"offset: the log has no partition {missing[0]}; it has {len(ends)}, from 0 on"
            raise ValueError(message)
        await self.replay(uid, after_offsets(offsets, ends))

    async def redrive(self, uid: str) -> int:
        """Deliver again what the history says was dead-lettered or dropped; how many. They begin at once, beside what is on its way.

        They are not in any checkpoint: what a crash cuts off is in the history still.

        Raises:
            KeyError: it is not served here.
            UnavailableError: log or store are away.
        """
        worker = self._worker(uid)
        await history.keep([(uid, worker.couriers[uid].history)], self._checkpoints.record)
        wanted: dict[int, set[str]] = {}
        for failure in await self._checkpoints.history(uid):
            if failure.end in {End.DEAD_LETTERED, End.DROPPED}:
                wanted.setdefault(failure.partition, set()).add(failure.offset)
        found = await places_in(self._outside.log, worker.wanted.log, wanted)
        worker.couriers[uid].redrive(found, partial(stored_at, self._outside.log, worker.wanted.log))
        return len(found)

    def _worker(self, uid: str) -> RouteWorker:
        for worker in self.workers.values():
            if uid in worker.couriers:
                return worker
        raise KeyError(uid)

    # -- places

    async def flush(self, *, idle: bool = True) -> None:
        """Make durable how far everybody is. `idle`: those too that completed nothing and only passed events over.

        What is completed above the positions is kept then, too.

        Raises:
            GatewayError: the store is away; the next flush has it all.
        """
        async with self._flushing:
            moved: dict[tuple[str, int], tuple[Track, str]] = {}
            done: dict[tuple[str, int], tuple[Track, Sequence[Range]]] = {}
            touched, tracks = self._outside.touched, self._tracks(idle=idle)
            touched.clear()
            for key, track in tracks:
                if (position := track.position()) != track.saved:
                    moved[key] = (track, position)
                if idle and (ranges := track.done) != track.saved_done:
                    done[key] = (track, ranges)
            try:
                await self._checkpoints.save(
                    {key: position for key, (_, position) in moved.items()}, {key: ranges for key, (_, ranges) in done.items()}
                )
            except BaseException:
                touched.update(track for track, _ in moved.values())
                raise
            for track, position in moved.values():
                track.saved = position
            for track, ranges in done.values():
                track.saved_done = ranges

    async def keep_histories(self) -> None:
        """Make durable what failed lately. It may take long, and positions do not wait for it.

        Raises:
            GatewayError: the store is away; the next time has it all.
        """
        await history.keep([(uid, courier.history) for uid, courier in self._couriers()], self._checkpoints.record)

    @property
    def kept_s_ago(self) -> float:
        """Seconds since positions were kept; what was delivered since then is delivered again after a crash."""
        return time.monotonic() - self._kept_s

    def _tracks(self, *, idle: bool) -> list[tuple[tuple[str, int], Track]]:
        """Those that completed something since the last flush; `idle`: all. Closed ones are stored when they are closed."""
        if not idle:
            return [(track.key, track) for track in self._outside.touched if not track.closed]
        return [(track.key, track) for _, courier in self._couriers() for track in courier.tracks.values()]

    async def _flush_always(self) -> None:
        every = max(1, self.settings.idle_flush_ms // self.settings.flush_ms)
        turn = 0
        while True:
            await asyncio.sleep(self.settings.flush_ms / 1000)
            turn = (turn + 1) % every
            with _told("places_not_kept"):
                await self.flush(idle=turn == 0)
                self._kept_s = time.monotonic()
            if self.kept_s_ago > _AGAIN_S:  # the log is not filled with the same line
                await asyncio.sleep(_AGAIN_S)

    async def _keep_histories_always(self) -> None:
        while True:
            await asyncio.sleep(_HISTORY_TURNS * self.settings.flush_ms / 1000)
            with _told("history_not_kept"):
                await self.keep_histories()

    async def _look_always(self) -> None:
        """Beside the flushes: a log that is away does not keep places from being kept."""
        while True:
            await asyncio.sleep(self.settings.idle_flush_ms / 1000)
            await asyncio.gather(*(self._look(worker) for worker in list(self.workers.values())))
            if self._replicated:
                with _told("replays_not_looked_for"):
                    await self._look_for_replays()

    async def _look(self, worker: RouteWorker) -> None:
        with _told("log_not_looked_at"):
            if await worker.look():
                # No flush meanwhile: it would have positions of the former log.
                async with self._flushing:
                    await worker.begin_again()

    async def _look_for_replays(self) -> None:
        """See what other replicas were asked for."""
        for uid, rows in (await self._checkpoints.noted(below=INCARNATION)).items():
            for worker in list(self.workers.values()):
                if uid in worker.couriers:
                    async with self._flushing:
                        await worker.go_where_asked(uid, asked_for(rows))

    def _couriers(self) -> list[tuple[str, Courier]]:
        return [each for worker in self.workers.values() for each in worker.couriers.items()]

    def _close_later(self, worker: RouteWorker) -> None:
        task = asyncio.create_task(worker.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
