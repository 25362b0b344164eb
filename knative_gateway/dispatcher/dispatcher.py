"""[io] All routes: one worker each, and the regular work of all of them.

Laws: what is completed is stored as completed within `flush_ms`, so that a crash repeats little; a stop waits
for answers, then stores all cursors. `applied` reports what is served, and never more.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Final, Self

import structlog

from knative_gateway.delivery import End
from knative_gateway.dispatcher import history, positions, storing
from knative_gateway.dispatcher.context import DispatchContext
from knative_gateway.dispatcher.cursor import Cursor
from knative_gateway.dispatcher.figures import NO_LAG, Lag
from knative_gateway.dispatcher.ownership import Alone, Ownership
from knative_gateway.dispatcher.posting.connecting import Connections
from knative_gateway.dispatcher.posting.sending import Sender
from knative_gateway.dispatcher.settings import DispatchSettings
from knative_gateway.dispatcher.starts import after_offsets, after_time, ends_of
from knative_gateway.dispatcher.subscribers.delivering import SubscriberDispatcher
from knative_gateway.dispatcher.subscribers.redriving import Listed, read_one, still_stored
from knative_gateway.dispatcher.worker import RouteWorker
from knative_gateway.errors import GatewayError
from knative_gateway.ports import CursorStore, EventLog, Route, Routes
from knative_gateway.running.supervising import Supervisor

_RETRY_S: Final = 1.0
"""The wait after cursors could not be stored."""
_HISTORY_FLUSHES: Final = 5
"""Flushes of cursors for one flush of histories, which are less urgent."""

log = structlog.get_logger(__name__)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def _logged(event: str) -> Iterator[None]:
    """Log an error and continue: regular work is retried the next time."""
    try:
        yield
    except GatewayError as error:
        log.warning(event, reason=str(error))
    except Exception:
        log.exception(event)


class Dispatcher:
    """Sends the events of all routes to their subscribers. Use it with `async with`; call `use` with what to
    serve.
    """

    def __init__(
        self,
        events: EventLog,
        store: CursorStore,
        sender: Sender,
        settings: DispatchSettings | None = None,
        *,
        ownership: Ownership | None = None,
        changed: Callable[[str], None] = lambda _path: None,
        now_ms: Callable[[], int] = _wall_ms,
        chance: Callable[[], float] = random.random,
        tasks: Supervisor | None = None,
    ) -> None:
        """`ownership`: of the partitions; None: this gateway owns all.

        `changed` is called with a path whenever that path is served differently.
        """
        self.settings: Final = settings or DispatchSettings()
        self.workers: Final[dict[str, RouteWorker]] = {}
        reading = asyncio.Semaphore(self.settings.readers_max)
        self._context: Final = DispatchContext(sender, events, self.settings, now_ms, chance, reading)
        self._store: Final = store
        self._ownership: Final = ownership or Alone()
        self._replicated: Final = ownership is not None
        self._changed: Final = changed
        self._supervisor: Final = tasks or Supervisor()
        self._routes = Routes(0, {})
        self._closing: Final[set[asyncio.Task[None]]] = set()
        self._flushing: Final = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._stored_s = time.monotonic()

    async def __aenter__(self) -> Self:
        run = self._supervisor.keep
        self._tasks = [
            run("dispatcher.flush", self._flush_regularly),
            run("dispatcher.histories", self._store_histories_regularly),
            run("dispatcher.look", self._look_regularly),
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop beginning deliveries, wait up to `drain_s` for answers, and store all cursors."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        workers = list(self.workers.values())
        self.workers.clear()
        ended = await asyncio.gather(*(worker.end(self.settings.drain_s) for worker in workers))
        # Before the partitions are left to other replicas, which continue from the stored cursors.
        await storing.keep([each for dispatchers in ended for each in dispatchers], self._store)
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
                changed = partial(self._changed, route.path)
                self.workers[uid] = RouteWorker(route, self._context, self._store, self._ownership, changed)
            elif worker.wanted != route:
                worker.use(route)

    @property
    def applied(self) -> Routes:
        """What is served now. A new route is missing until it is served; a changed one is as before until
        then.
        """
        served = (worker.served for worker in self.workers.values())
        return Routes(self._routes.version, {route.path: route for route in served if route is not None})

    def served(self, path: str) -> Route | None:
        """The route of a path as it is served now."""
        worker = self._at(path)
        return None if worker is None else worker.served

    def failing_at(self, path: str) -> Mapping[str, str]:
        """Why subscribers of a route are not served, by uid; they are retried."""
        worker = self._at(path)
        return {} if worker is None else worker.failing

    def _at(self, path: str) -> RouteWorker | None:
        route = self._routes.by_path.get(path)
        return None if route is None else self.workers.get(route.uid)

    @property
    def failing(self) -> Mapping[str, str]:
        """Why subscribers of any route are not served, by uid; they are retried."""
        return {uid: reason for worker in self.workers.values() for uid, reason in worker.failing.items()}

    def dispatcher_of(self, uid: str) -> SubscriberDispatcher | None:
        """The dispatcher of a subscriber; None: the subscriber is not served here."""
        workers = self.workers.values()
        return next((worker.dispatchers[uid] for worker in workers if uid in worker.dispatchers), None)

    def subscribers(self) -> Iterator[tuple[str, SubscriberDispatcher, Lag]]:
        """All subscribers that are served: the name of the Broker or Channel, the dispatcher, and its lag."""
        now_ms = self._context.now_ms()
        for worker in list(self.workers.values()):  # copies: `/metrics` is made in another thread
            for dispatcher in list(worker.dispatchers.values()):
                yield worker.wanted.name, dispatcher, worker.lag(dispatcher, now_ms)

    @property
    def connections(self) -> Connections:
        """All connections to subscribers."""
        return self._context.sender.connections

    def lag(self, uid: str) -> Lag:
        """How far a subscriber is behind."""
        now_ms = self._context.now_ms()
        served = (
            (worker, worker.dispatchers[uid]) for worker in self.workers.values() if uid in worker.dispatchers
        )
        return next((worker.lag(dispatcher, now_ms) for worker, dispatcher in served), NO_LAG)

    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """The counters of all subscribers, by uid."""
        return {
            each.spec.uid: {**each.figures.counters(), "lag": lag.events}
            for _, each, lag in self.subscribers()
        }

    def figures(self, uid: str) -> Mapping[str, int]:
        """The counters of one subscriber; empty if it is not served here."""
        dispatcher = self.dispatcher_of(uid)
        return {} if dispatcher is None else {**dispatcher.figures.counters(), "lag": self.lag(uid).events}

    # -- replay and redrive

    async def replay(self, uid: str, to: Mapping[int, str]) -> None:
        """Move a subscriber to these positions, earlier or later.

        Raises:
            KeyError: the subscriber is not served here.
            UnavailableError: log or store are away; the subscriber continues from where it was.
        """
        # Without the lock, a flush could store where the subscriber was before.
        async with self._flushing:
            await self._worker(uid).replay(uid, to)

    async def replay_from_time(self, uid: str, at_ms: int) -> None:
        """Move a subscriber to the first event that was stored at that time (since 1970 UTC) or later."""
        await self.replay(uid, await after_time(self._worker(uid).wanted.log, at_ms, self._context.log))

    async def replay_from_offsets(self, uid: str, offsets: str) -> None:
        """Move a subscriber to the first event after each PARTITION=OFFSET,…; other partitions stay where
        they are.

        Raises:
            ValueError: the log does not have one of these partitions.
        """
        ends = await ends_of(self._worker(uid).wanted.log, self._context.log)
        missing = sorted(positions.given(offsets).keys() - ends.keys())
        if missing:
            message = f"offset: the log does not have partition {missing[0]}; it has {len(ends)}, from 0 on"
            raise ValueError(message)
        await self.replay(uid, after_offsets(offsets, ends))

    async def redrive(self, uid: str) -> int:
        """Deliver again what the history lists as dead-lettered or dropped; returns how many events.

        They begin at once, in addition to what is in flight. No cursor has them; after a crash they are in
        the history still.

        Raises:
            KeyError: the subscriber is not served here.
            UnavailableError: log or store are away.
        """
        worker = self._worker(uid)
        await history.keep([(uid, worker.dispatchers[uid].history)], self._store.record)
        listed = [
            Listed(failure.partition, failure.offset, (failure.event_id, failure.event_source))
            for failure in await self._store.history(uid)
            if failure.end in {End.DEAD_LETTERED, End.DROPPED}
        ]
        events = await still_stored(self._context.log, worker.wanted.log, listed)
        worker.dispatchers[uid].redrive(events, partial(read_one, self._context.log, worker.wanted.log))
        return len(events)

    def _worker(self, uid: str) -> RouteWorker:
        for worker in self.workers.values():
            if uid in worker.dispatchers:
                return worker
        raise KeyError(uid)

    # -- regular work

    async def flush(self, *, idle: bool = True) -> None:
        """Store the cursors that moved since the last flush.

        `idle`: also those of subscribers that completed nothing and only skipped events, and what is
        completed above the positions.

        Raises:
            GatewayError: the store is away; the next flush stores all of it.
        """
        async with self._flushing:
            moved = self._context.moved
            # Closed cursors are stored when they are closed; by now another owner may have stored a later
            # position.
            cursors = self._cursors() if idle else [cursor for cursor in moved if not cursor.closed]
            await storing.flush(cursors, moved, self._store, ranges=idle)

    async def store_histories(self) -> None:
        """Store what failed lately. It may take long, so cursors do not wait for it.

        Raises:
            GatewayError: the store is away; the next call stores all of it.
        """
        histories = [(dispatcher.spec.uid, dispatcher.history) for dispatcher in self._dispatchers()]
        await history.keep(histories, self._store.record)

    @property
    def stored_s_ago(self) -> float:
        """Seconds since cursors were stored; what was delivered since then is delivered again
        after a crash.
        """
        return time.monotonic() - self._stored_s

    def _cursors(self) -> list[Cursor]:
        return [each.cursor for dispatcher in self._dispatchers() for each in dispatcher.partitions.values()]

    async def _flush_regularly(self) -> None:
        idle_every = max(1, self.settings.idle_flush_ms // self.settings.flush_ms)
        count = 0
        while True:
            await asyncio.sleep(self.settings.flush_ms / 1000)
            count = (count + 1) % idle_every
            with _logged("cursors_not_stored"):
                await self.flush(idle=count == 0)
                self._stored_s = time.monotonic()
            if self.stored_s_ago > _RETRY_S:  # else the gateway's log would fill with the same line
                await asyncio.sleep(_RETRY_S)

    async def _store_histories_regularly(self) -> None:
        while True:
            await asyncio.sleep(_HISTORY_FLUSHES * self.settings.flush_ms / 1000)
            with _logged("histories_not_stored"):
                await self.store_histories()

    async def _look_regularly(self) -> None:
        """A task of its own: a log that is away must not keep cursors from being stored."""
        while True:
            await asyncio.sleep(self.settings.idle_flush_ms / 1000)
            await asyncio.gather(*(self._look(worker) for worker in list(self.workers.values())))
            if self._replicated:
                with _logged("replays_not_read"):
                    await self._carry_out_replays()

    async def _look(self, worker: RouteWorker) -> None:
        with _logged("log_end_not_read"):
            if await worker.look():
                # Without the lock, a flush could store positions of the former log.
                async with self._flushing:
                    await worker.begin_again()

    async def _carry_out_replays(self) -> None:
        """Carry out the replays that other replicas were asked for, in our partitions."""
        for uid, replays in (await self._store.replays()).items():
            for worker in list(self.workers.values()):
                if uid in worker.dispatchers:
                    async with self._flushing:
                        await worker.replay_if_ours(uid, replays)

    def _dispatchers(self) -> list[SubscriberDispatcher]:
        return [dispatcher for worker in self.workers.values() for dispatcher in worker.dispatchers.values()]

    def _close_later(self, worker: RouteWorker) -> None:
        task = asyncio.create_task(worker.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
