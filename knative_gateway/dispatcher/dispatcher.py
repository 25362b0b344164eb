"""[io] The dispatcher of all routes: one worker for each route, and the periodic tasks.

Completed events are stored as completed within `flush_ms`, so that few events are delivered again after a
crash. On a stop, the dispatcher waits for answers, then stores all cursors. `applied` reports a route only
after the route is served.
"""

import asyncio
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping
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
from knative_gateway.dispatcher.starts import after_offsets, after_time, before_first, ends_of
from knative_gateway.dispatcher.subscribers.delivering import SubscriberDispatcher
from knative_gateway.dispatcher.subscribers.redriving import Listed, Progress, read_one, still_stored
from knative_gateway.dispatcher.worker import RouteWorker
from knative_gateway.errors import GatewayError
from knative_gateway.ports import CursorStore, EventLog, Route, Routes
from knative_gateway.running.supervising import Supervisor

_RETRY_S: Final = 1.0
"""The pause after a failure to store cursors."""
_HISTORY_FLUSHES: Final = 5
"""Histories are stored once in this many flushes of cursors. They are less urgent."""

log = structlog.get_logger(__name__)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def _logged(event: str) -> Iterator[None]:
    """Log an error and continue: a periodic task retries at its next run."""
    try:
        yield
    except GatewayError as error:
        log.warning(event, reason=str(error))
    except Exception:
        log.exception(event)


class Dispatcher:
    """Sends the events of all routes to their subscribers.

    Use it with `async with`, and pass the routes to `use`.
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
        """`ownership`: decides which partitions this gateway delivers; None: all of them. `changed` is called
        with the path of a route whenever the served state of the route changes.
        """
        self.settings: Final = settings or DispatchSettings()
        self.workers: Final[dict[str, RouteWorker]] = {}
        # Own readers hold batches of events in memory. The semaphore bounds them for all routes together.
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
        """Begin no more deliveries, wait up to `drain_s` for answers, and store all cursors."""
        for task in self._tasks:
            task.cancel()
        # The periodic tasks end first, so that nothing else stores cursors while the workers end.
        await asyncio.gather(*self._tasks, return_exceptions=True)
        workers = list(self.workers.values())
        self.workers.clear()
        ended = await asyncio.gather(*(worker.end(self.settings.drain_s) for worker in workers))
        # First the cursors, then the partitions: the next owner continues from the stored cursors.
        await storing.keep([each for dispatchers in ended for each in dispatchers], self._store)
        await asyncio.gather(*(worker.leave() for worker in workers), *self._closing)

    # -- what is served

    def use(self, routes: Routes) -> None:
        """Serve these routes from now on. Returns at once."""
        self._routes = routes
        wanted: dict[str, Route] = {route.uid: route for route in routes.by_path.values()}
        # By uid and not by path: a Broker that was deleted and recreated has the same path and another log.
        for uid in self.workers.keys() - wanted.keys():
            self._close_later(self.workers.pop(uid))
        for uid, route in wanted.items():
            worker = self.workers.get(uid)
            if worker is None:
                changed = partial(self._changed, route.path)
                self.workers[uid] = RouteWorker(route, self._context, self._store, self._ownership, changed)
            # An unchanged route is not touched. The controller passes all routes at each change of one of
            # them.
            elif worker.wanted != route:
                worker.use(route)

    @property
    def applied(self) -> Routes:
        """The routes that are served now. A new route is missing until it is served; a changed route is the
        former version until then.
        """
        served = (worker.served for worker in self.workers.values())
        return Routes(self._routes.version, {route.path: route for route in served if route is not None})

    def served(self, path: str) -> Route | None:
        """Return the route of a path as it is served now."""
        worker = self._at(path)
        return None if worker is None else worker.served

    def failing_at(self, path: str) -> Mapping[str, str]:
        """Return why subscribers of a route are not served, by uid. The dispatcher retries them."""
        worker = self._at(path)
        return {} if worker is None else worker.failing

    def _at(self, path: str) -> RouteWorker | None:
        route = self._routes.by_path.get(path)
        return None if route is None else self.workers.get(route.uid)

    def worker_at(self, path: str) -> RouteWorker | None:
        """Return the worker of the route at a path; None if this gateway does not serve it."""
        return self._at(path)

    @property
    def routes(self) -> Mapping[str, Route]:
        """The latest routes, by path."""
        return self._routes.by_path

    @property
    def failing(self) -> Mapping[str, str]:
        """Why subscribers of any route are not served, by uid. The dispatcher retries them."""
        return {uid: reason for worker in self.workers.values() for uid, reason in worker.failing.items()}

    def dispatcher_of(self, uid: str) -> SubscriberDispatcher | None:
        """Return the dispatcher of a subscriber, or None if this gateway does not serve the subscriber."""
        workers = self.workers.values()
        return next((worker.dispatchers[uid] for worker in workers if uid in worker.dispatchers), None)

    def subscribers(self) -> Iterator[tuple[str, SubscriberDispatcher, Lag]]:
        """Yield each served subscriber: the name of the Broker or Channel, the dispatcher, and the lag."""
        now_ms = self._context.now_ms()
        for worker in list(self.workers.values()):  # copies: `/metrics` is built in another thread
            for dispatcher in list(worker.dispatchers.values()):
                yield worker.wanted.name, dispatcher, worker.lag(dispatcher, now_ms)

    @property
    def connections(self) -> Connections:
        """All connections to subscribers."""
        return self._context.sender.connections

    def lag(self, uid: str) -> Lag:
        """Return how far a subscriber is behind the end of its log."""
        now_ms = self._context.now_ms()
        served = (
            (worker, worker.dispatchers[uid]) for worker in self.workers.values() if uid in worker.dispatchers
        )
        return next((worker.lag(dispatcher, now_ms) for worker, dispatcher in served), NO_LAG)

    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """Return the counters of all subscribers, by uid."""
        return {
            each.spec.uid: {**each.figures.counters(), "lag": lag.events}
            for _, each, lag in self.subscribers()
        }

    def figures(self, uid: str) -> Mapping[str, int]:
        """Return the counters of one subscriber; empty if this gateway does not serve it."""
        dispatcher = self.dispatcher_of(uid)
        return {} if dispatcher is None else {**dispatcher.figures.counters(), "lag": self.lag(uid).events}

    def log_of(self, uid: str) -> str:
        """Return the log that a subscriber reads. Raises KeyError: this gateway does not serve it."""
        return self._worker(uid).wanted.log

    # -- replay and redrive

    async def replay(self, uid: str, to: Mapping[int, str]) -> None:
        """Move a subscriber to these positions, which may be earlier or later.

        Raises:
            KeyError: this gateway does not serve the subscriber. UnavailableError: the log or the store is
            not available; the subscriber continues from where it was.
        """
        # Without the lock, a concurrent flush could overwrite the new positions with the old ones.
        async with self._flushing:
            await self._worker(uid).replay(uid, to)

    async def replay_from_time(self, uid: str, at_ms: int) -> None:
        """Move a subscriber to the first event that was stored at `at_ms` (since 1970 UTC) or later."""
        await self.replay(uid, await after_time(self._worker(uid).wanted.log, at_ms, self._context.log))

    async def replay_from_offsets(self, uid: str, offsets: str) -> None:
        """Move a subscriber to the first event after each offset in `PARTITION=OFFSET,…`.

        Positions in other partitions do not change.

        Raises:
            ValueError: the log does not have one of the partitions.
        """
        ends = await ends_of(self._worker(uid).wanted.log, self._context.log)
        missing = sorted(positions.given(offsets).keys() - ends.keys())
        if missing:
            message = f"offset: the log does not have partition {missing[0]}; it has {len(ends)}, from 0 on"
            raise ValueError(message)
        await self.replay(uid, after_offsets(offsets, ends))

    async def lags(self, uid: str, stored: Mapping[int, str]) -> Mapping[int, int]:
        """Return how many events of each partition the subscriber will still get.

        `stored`: its stored positions. Other replicas may own some of the partitions.

        Raises:
            KeyError: this gateway does not serve the subscriber. UnavailableError: the log is not available.
        """
        worker = self._worker(uid)
        own = worker.dispatchers[uid].partitions
        extents = await self._context.log.extents(worker.wanted.log)
        found = {}
        for partition, gone in before_first(extents).items():
            reached = stored.get(partition, positions.BEGINNING)
            if partition in own:
                # The stored position is older: it is written a moment later.
                reached = own[partition].cursor.reached
            end = positions.stored(extents.last.get(partition))
            found[partition] = positions.behind(reached, reached, gone=gone, end=end)
        return found

    async def redrive(self, uid: str, only: Collection[tuple[int, str]] | None = None) -> int:
        """Deliver again the events that the history lists as dead-lettered or dropped; returns how many.

        `only`: partition and offset of those to deliver; None: all.

        The events are sent at once, in addition to the events in flight. They do not belong to a cursor.
        After a crash, they are still in the history.

        Raises:
            KeyError: this gateway does not serve the subscriber.
            UnavailableError: the log or the store is not available.
        """
        worker = self._worker(uid)
        # The latest failures are only in memory. They must be in the list that is read next.
        await history.keep([(uid, worker.dispatchers[uid].history)], self._store.record)
        listed = [
            Listed(failure.partition, failure.offset, (failure.event_id, failure.event_source))
            for failure in await self._store.history(uid)
            if failure.end in {End.DEAD_LETTERED, End.DROPPED}
            and (only is None or (failure.partition, failure.offset) in only)
        ]
        events = await still_stored(self._context.log, worker.wanted.log, listed)
        worker.dispatchers[uid].redrive(events, partial(read_one, self._context.log, worker.wanted.log))
        return len(events)

    def redrives(self, uid: str) -> Progress:
        """Return how far the redrive of a subscriber is that this process carries out.

        Raises:
            KeyError: this gateway does not serve the subscriber.
        """
        return self._worker(uid).dispatchers[uid].redrives.progress

    def cancel_redrive(self, uid: str) -> int:
        """Deliver none of the events of a redrive whose delivery has not begun. Returns their number.

        Raises:
            KeyError: this gateway does not serve the subscriber.
        """
        return self._worker(uid).dispatchers[uid].cancel_redrive()

    def _worker(self, uid: str) -> RouteWorker:
        for worker in self.workers.values():
            if uid in worker.dispatchers:
                return worker
        raise KeyError(uid)

    # -- regular work

    async def flush(self, *, idle: bool = True) -> bool:
        """Store the cursors that moved since the last flush. Returns whether there was anything to store.

        `idle`: also store the cursors of subscribers that only skipped events, and the completed ranges above
        the positions.

        Raises:
            GatewayError: the store is not available; the next flush stores the cursors.
        """
        async with self._flushing:
            moved = self._context.moved
            # A closed cursor was stored when it was closed. By now another owner may have stored a later
            # position.
            cursors = self._cursors() if idle else [cursor for cursor in moved if not cursor.closed]
            return await storing.flush(cursors, moved, self._store, ranges=idle)

    async def store_histories(self) -> None:
        """Store the latest failures. Cursors do not wait for this, because it may take long.

        Raises:
            GatewayError: the store is not available; the next call stores the failures.
        """
        histories = [(dispatcher.spec.uid, dispatcher.history) for dispatcher in self._dispatchers()]
        await history.keep(histories, self._store.record)

    @property
    def stored_s_ago(self) -> float:
        """Seconds since cursors were stored. After a crash, events that were delivered in this time are
        delivered again.
        """
        return time.monotonic() - self._stored_s

    def _cursors(self) -> list[Cursor]:
        return [each.cursor for dispatcher in self._dispatchers() for each in dispatcher.partitions.values()]

    async def _flush_regularly(self) -> None:
        # Cursors that only skipped events change all the time on a busy log. Storing them costs a write and
        # saves no delivery, so this is done less often.
        idle_every = max(1, self.settings.idle_flush_ms // self.settings.flush_ms)
        count, is_failing = 0, False
        while True:
            await asyncio.sleep(self.settings.flush_ms / 1000)
            count = (count + 1) % idle_every
            is_idle = count == 0
            with _logged("cursors_not_stored"):
                is_failing, has_failed = True, is_failing
                has_asked = await self.flush(idle=is_idle)
                if not has_asked and (is_idle or has_failed):
                    # Nothing to store does not show that the store works: it may be the reason why no
                    # subscriber is served. So the store is asked for something cheap.
                    await self._store.replays()
                is_failing = False
                self._stored_s = time.monotonic()
            # After a failed flush only: a successful one has just set the time.
            if self.stored_s_ago > _RETRY_S:  # so that an outage does not fill the log with one line
                await asyncio.sleep(_RETRY_S)

    async def _store_histories_regularly(self) -> None:
        while True:
            await asyncio.sleep(_HISTORY_FLUSHES * self.settings.flush_ms / 1000)
            with _logged("histories_not_stored"):
                await self.store_histories()

    async def _look_regularly(self) -> None:
        """Refresh the ends of logs. This is a separate task, so that cursors are stored while a log is
        unavailable.
        """
        while True:
            await asyncio.sleep(self.settings.idle_flush_ms / 1000)
            # In parallel: a log whose node does not answer delays only its own look.
            await asyncio.gather(*(self._look(worker) for worker in list(self.workers.values())))
            if self._replicated:
                with _logged("replays_not_read"):
                    await self._carry_out_replays()

    async def _look(self, worker: RouteWorker) -> None:
        with _logged("log_end_not_read"):
            if await worker.look():
                # Without the lock, a concurrent flush could store positions of the deleted log.
                async with self._flushing:
                    await worker.begin_again()

    async def _carry_out_replays(self) -> None:
        """Carry out, in the partitions of this gateway, the replays that other replicas were asked for."""
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
