"""[io] One Broker or Channel: the readers of its partitions and the dispatchers of its subscribers.

A change of the route does not lose events in flight. A subscriber is served from its stored cursor, and is
reported as served only then. A subscriber that returns with the same uid begins after its predecessor has
ended.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import structlog

from knative_gateway.dispatcher import positions, starts, storing
from knative_gateway.dispatcher.context import DispatchContext
from knative_gateway.dispatcher.cursor import Cursor
from knative_gateway.dispatcher.figures import Figures, Lag
from knative_gateway.dispatcher.history import History
from knative_gateway.dispatcher.ownership import AWAIT_S, Ownership
from knative_gateway.dispatcher.reader import PartitionReader
from knative_gateway.dispatcher.starts import Begin
from knative_gateway.dispatcher.subscribers.delivering import SubscriberDispatcher
from knative_gateway.dispatcher.subscribers.partition import SubscriberPartition
from knative_gateway.errors import GatewayError
from knative_gateway.filters import FilterError, Index
from knative_gateway.ports import CursorStore, Route, Subscriber

log = structlog.get_logger(__name__)

LEAVING_S: Final = 2.0
"""How long the gateway waits for the answers of a removed subscriber."""
_RETRY_S: Final = 1.0


class RouteWorker:
    """Serves one route until `close` or `end`.

    `wanted`: the latest route. `served`: the route that is served now. `failing`: why subscribers are not
    served, by uid. `index`: the filters of the served subscribers, by uid.
    """

    def __init__(
        self,
        route: Route,
        context: DispatchContext,
        store: CursorStore,
        ownership: Ownership,
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called whenever `served` or `failing` changes."""
        self.wanted = route
        self.served: Route | None = None
        self.failing: Mapping[str, str] = {}
        self.dispatchers: Final[dict[str, SubscriberDispatcher]] = {}
        self.readers: Final[dict[int, PartitionReader]] = {}
        self._context: Final = context
        self._store: Final = store
        self._changed: Final = changed
        self.index: Final[Index[str]] = Index()
        self._ends: Mapping[int, str] = {}
        self._gone: Mapping[int, str] = {}
        self._incarnation = ""
        self._figures: dict[str, Figures] = {}
        self._histories: Final[dict[str, History]] = {}
        # A task for each end, which a stop does not cancel: it stores what was delivered.
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._releasing: asyncio.Task[None] | None = None
        # An event and not a queue: only the latest route counts, however often it changed meanwhile.
        self._wake: Final = asyncio.Event()
        # Changes of the route, replays and the end wait for one another: each of them moves subscribers
        # between dispatchers and readers.
        self._changing: Final = asyncio.Lock()
        self._warns_from_s: Final = asyncio.get_running_loop().time() + AWAIT_S
        self._share: Final = ownership.share(route.log, self._wake.set)
        self._followed = self._share.partitions
        self._task: Final = asyncio.create_task(self._run())

    @property
    def partitions(self) -> Collection[int]:
        """The partitions that this gateway delivers now."""
        served = list(self.dispatchers.values())  # a copy: `/metrics` is made in another thread
        return {number for dispatcher in served for number in list(dispatcher.partitions)}

    def use(self, route: Route) -> None:
        """Serve this route from now on. Returns at once."""
        self.wanted = route
        self._wake.set()

    async def close(self) -> None:
        """End a route that was removed.

        Cursors are stored first: as soon as the subscribers have ended, the controller may remove their
        cursors.
        """
        await self._halt()
        async with self._changing:
            await storing.keep(list(self.dispatchers.values()), self._store)
            await self._end_all(LEAVING_S)
        await self.leave()

    async def end(self, drain_s: float) -> Sequence[SubscriberDispatcher]:
        """Stop, and wait up to `drain_s` for answers.

        The caller stores the cursors of the returned dispatchers, then calls `leave`.
        """
        await self._halt()
        async with self._changing:
            return await self._end_all(drain_s)

    async def leave(self) -> None:
        """Give the partitions up to other replicas."""
        await self._share.close()

    async def _halt(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _end_all(self, drain_s: float) -> Sequence[SubscriberDispatcher]:
        dispatchers = list(self.dispatchers.values())
        self.dispatchers.clear()
        endings = (self._end(dispatcher, drain_s, store=False) for dispatcher in dispatchers)
        releasing = () if self._releasing is None else (self._releasing,)
        await asyncio.gather(*endings, *self._leaving.values(), *releasing)
        await asyncio.gather(*(reader.close() for reader in self.readers.values()))
        return dispatchers

    async def replay(self, uid: str, to: Mapping[int, str]) -> None:
        """Move a subscriber to other positions: at once in our partitions, soon in those of other replicas.

        Events in flight end first.

        Raises:
            KeyError: this worker does not serve the subscriber. UnavailableError: the store is not available;
            if the positions were stored, the subscriber moves later.
        """
        async with self._changing:
            spec = self.dispatchers[uid].spec
            # Stored before the subscriber is stopped: after a crash in between, the replay is still carried
            # out, and other replicas find it.
            await self._store.ask_replay(uid, to)
            await self._restart(spec)

    async def replay_if_ours(self, uid: str, partitions: Iterable[int]) -> None:
        """Carry out a replay that another replica was asked for, if any of the partitions is ours."""
        async with self._changing:
            if uid in self.dispatchers and any(self._is_ours(partition) for partition in partitions):
                await self._restart(self.dispatchers[uid].spec)

    async def _restart(self, spec: Subscriber) -> None:
        """End the subscriber's deliveries, and begin at the stored positions."""
        try:
            ending = self._end(self.dispatchers.pop(spec.uid), LEAVING_S)
            self._leaving[spec.uid] = asyncio.create_task(ending)
            self.failing = {**self.failing, **await self._enter([spec])}
        finally:
            self._wake.set()  # after a failure, too: the subscriber must be served again

    async def look(self) -> bool:
        """Read the current end of the log, for the lag. Returns whether the log was recreated since it is
        served.
        """
        if not self.dispatchers:
            return False
        read = {number: reader.read.offset for number, reader in self.readers.items()}
        try:
            extents = await self._context.log.extents(self.wanted.log)
        except GatewayError:
            return False
        # Up to here retention has removed the events: in an empty partition, all that were read before.
        self._gone = read | {p: at for p, at in starts.before_first(extents).items() if extents.first[p]}
        self._ends = {partition: positions.stored(end) for partition, end in extents.last.items()}
        # Offsets of a recreated log begin at 0 again, so stored positions would hide its first events.
        return bool(self._incarnation and extents.incarnation and extents.incarnation != self._incarnation)

    async def begin_again(self) -> None:
        """Deliver all events of a log that was deleted and recreated.

        The caller must prevent flushes in the meantime: positions of the former log would hide events of the
        new one.
        """
        async with self._changing:
            log.error(
                "log_recreated", log=self.wanted.log, action="its events are delivered from the first one"
            )
            dispatchers = list(self.dispatchers.values())
            ending = asyncio.create_task(self._end_with_log(dispatchers))
            self._leaving.update(dict.fromkeys(self.dispatchers, ending))
            self.dispatchers.clear()
            try:
                await asyncio.shield(ending)
                await asyncio.gather(*(reader.close() for reader in self.readers.values()))
                self.readers.clear()
                entered = await self._enter([dispatcher.spec for dispatcher in dispatchers], anew=True)
                self.failing = {**self.failing, **entered}
                for dispatcher in self.dispatchers.values():
                    dispatcher.state.log_recreated()
            finally:
                self._wake.set()  # after a failure, too: the subscribers must be served again

    async def _end_with_log(self, dispatchers: Sequence[SubscriberDispatcher]) -> None:
        endings = (self._end(dispatcher, LEAVING_S, store=False) for dispatcher in dispatchers)
        await asyncio.gather(*endings)
        await storing.keep(dispatchers, self._store, ())  # their histories, but no positions

    def lag(self, dispatcher: SubscriberDispatcher, now_ms: int) -> Lag:
        """Return how far a subscriber is behind the end of the log, as of the last `look` or read.

        Must not change anything: `/metrics` is built in another thread.
        """
        events, oldest = 0, now_ms
        for number, partition in list(dispatcher.partitions.items()):
            reader, cursor = self.readers.get(number), partition.cursor
            read = positions.BEGINNING if reader is None else reader.read.offset
            end = max(self._ends.get(number, positions.BEGINNING), read)
            gone = self._gone.get(number, positions.BEGINNING)
            behind = positions.behind(cursor.reached, cursor.read.offset, gone=gone, end=end)
            events += behind
            if behind:
                oldest = min(oldest, partition.oldest_ms or partition.read_ms or now_ms)
        return Lag(events, (now_ms - oldest) / 1000)

    # -- reconciling `served` with `wanted`

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            wanted = self.wanted
            try:
                async with self._changing:
                    self.failing = await self._become(wanted)
                    self.served = wanted
            except Exception as error:
                # An internal error. Other routes are not affected, and this route is retried.
                log.exception("route_not_served", path=wanted.path)
                self.failing = {
                    subscriber.uid: f"internal error: {error!r}" for subscriber in wanted.subscribers
                }
            self._leaving = {uid: task for uid, task in self._leaving.items() if not task.done()}
            self._changed()
            try:
                async with asyncio.timeout(_RETRY_S if self.failing else None):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _become(self, wanted: Route) -> Mapping[str, str]:
        """Serve this route: end removed subscribers, update the remaining ones, begin new ones.

        Returns why subscribers could not begin, by uid.
        """
        specs = {subscriber.uid: subscriber for subscriber in wanted.subscribers}
        # Before they end: the controller removes the cursors of subscribers that have ended, and a cursor
        # that is stored later would never be removed.
        removed = [dispatcher for uid, dispatcher in self.dispatchers.items() if uid not in specs]
        await storing.keep(removed, self._store)
        for uid, dispatcher in list(self.dispatchers.items()):
            spec = specs.get(uid)
            # The subscriber was removed. Its cursor was stored above and is removed by the controller.
            if spec is None:
                self._figures.pop(uid, None)
                self._histories.pop(uid, None)
                ending = self._end(self.dispatchers.pop(uid), LEAVING_S, store=False)
                self._leaving[uid] = asyncio.create_task(ending)
            # The window of a partition is made for one order. Events that wait in it cannot move to another
            # one, so the subscriber begins again.
            elif spec.order is not dispatcher.spec.order:
                self._leaving[uid] = asyncio.create_task(self._end(self.dispatchers.pop(uid), LEAVING_S))
        failing: dict[str, str] = {}
        for uid, dispatcher in self.dispatchers.items():
            if specs[uid] != dispatcher.spec:
                dispatcher.update(specs[uid])
        self._reindex()
        failing |= await self._follow_share()
        failing |= await self._enter(spec for uid, spec in specs.items() if uid not in self.dispatchers)
        return failing

    async def _enter(self, specs: Iterable[Subscriber], *, anew: bool = False) -> Mapping[str, str]:
        """Begin to serve these subscribers. Returns why some could not begin. `anew`: see `starts.begin`."""
        failing: dict[str, str] = {}
        made: dict[str, SubscriberDispatcher] = {}
        for spec in specs:
            # A subscriber with the same uid may still have deliveries in flight. Two dispatchers of one
            # subscriber would break its order.
            leaving = self._leaving.get(spec.uid)
            if leaving is not None:
                await asyncio.wait({leaving})
                del self._leaving[spec.uid]
                leaving.result()
            try:
                figures = self._figures.setdefault(spec.uid, Figures())
                # Failures that could not be stored when the predecessor ended are stored later.
                history = self._histories.setdefault(spec.uid, History())
                made[spec.uid] = SubscriberDispatcher(spec, self._context, figures, history)
            except FilterError as error:
                failing[spec.uid] = str(error)
        begun: dict[str, Mapping[int, Begin]] = {}
        incarnation = ""
        if made:
            begun, failed, incarnation = await self._begin(
                [dispatcher.spec for dispatcher in made.values()], anew=anew
            )
            failing |= failed
        for uid, reason in failing.items():
            write = log.warning if asyncio.get_running_loop().time() >= self._warns_from_s else log.info
            write("subscriber_not_served", log=self.wanted.log, uid=uid, reason=reason)
        self.dispatchers.update((uid, made[uid]) for uid in begun)
        try:
            self._reindex()
            self._place([(made[uid], starts) for uid, starts in begun.items()], incarnation)
        except BaseException:
            # A subscriber without partitions must not count as served.
            for uid in begun:
                del self.dispatchers[uid]
                await self._close_partitions(made[uid])
            self._reindex()
            raise
        return failing

    async def _begin(
        self, specs: Sequence[Subscriber], *, anew: bool = False
    ) -> tuple[dict[str, Mapping[int, Begin]], Mapping[str, str], str]:
        """Return where subscribers begin in our partitions that they do not have yet, why some cannot begin,
        and the incarnation of the log.

        A replay of a partition that a subscriber already has waits until the subscriber begins again.
        """

        def ours(uid: str, partition: int) -> bool:
            dispatcher = self.dispatchers.get(uid)
            return self._is_ours(partition) and (dispatcher is None or partition not in dispatcher.partitions)

        async def begin(some: Sequence[Subscriber]) -> Mapping[str, Mapping[int, Begin]]:
            events, store = self._context.log, self._store
            return await starts.begin(
                some, extents, self.wanted.log, ours, events=events, store=store, anew=anew
            )

        try:
            extents = await self._context.log.extents(self.wanted.log)
        except GatewayError as error:
            return {}, {spec.uid: str(error) for spec in specs}, ""
        if not self.dispatchers:
            # Otherwise keep the incarnation of the log that is served, so that `look` notices a new one.
            self._incarnation = extents.incarnation
        try:
            return dict(await begin(specs)), {}, extents.incarnation
        except Exception as error:  # noqa: BLE001  it is reported below
            if len(specs) == 1:
                return {}, {specs[0].uid: self._reason(error)}, ""
        # One by one: a subscriber that cannot begin must not prevent others from beginning.
        begun: dict[str, Mapping[int, Begin]] = {}
        failing: dict[str, str] = {}
        for spec in specs:
            try:
                begun |= await begin([spec])
            except Exception as error:  # noqa: BLE001  it is reported
                failing[spec.uid] = self._reason(error)
        return begun, failing, extents.incarnation

    @staticmethod
    def _reason(error: Exception) -> str:
        if isinstance(error, GatewayError):
            return str(error)
        log.error("subscriber_fault", exc_info=error)
        return f"internal error: {error!r}"

    async def _follow_share(self) -> Mapping[str, str]:
        """Release partitions that another replica owns now, and begin partitions that are ours now, from the
        stored cursors.
        """
        ours = self._share.partitions
        if ours == self._followed:
            return {}
        failing: Mapping[str, str] = {}
        released = [
            (dispatcher, partition)
            for dispatcher in self.dispatchers.values()
            for partition in dispatcher.partitions
            if not self._is_ours(partition)
        ]
        self._releasing = asyncio.create_task(self._release_all(released))
        await asyncio.shield(self._releasing)
        if self.dispatchers:
            begun, failing, incarnation = await self._begin(
                [dispatcher.spec for dispatcher in self.dispatchers.values()]
            )
            entering = []
            for uid, starts in begun.items():
                dispatcher = self.dispatchers[uid]
                gained = {
                    number: start for number, start in starts.items() if number not in dispatcher.partitions
                }
                entering.append((dispatcher, gained))
            self._place(entering, incarnation)
        if not failing:
            # Only if all began: otherwise the next run of `_become` tries again.
            self._followed = ours
        return failing

    async def _release_all(self, released: Sequence[tuple[SubscriberDispatcher, int]]) -> None:
        # First the deliveries end, then the cursors are stored: the new owner must not find an older
        # position.
        cursors = await asyncio.gather(
            *(self._release(dispatcher, partition) for dispatcher, partition in released)
        )
        await storing.keep([dispatcher for dispatcher, _ in released], self._store, cursors)

    async def _release(self, dispatcher: SubscriberDispatcher, number: int) -> Cursor:
        partition = dispatcher.remove(number)
        await self._reader(number).leave(partition)
        await dispatcher.release(partition, LEAVING_S)
        return partition.cursor

    def _place(
        self, entering: Sequence[tuple[SubscriberDispatcher, Mapping[int, Begin]]], incarnation: str
    ) -> None:
        """Begin our partitions of these subscribers, and pass them to the readers of the partitions."""
        made: dict[int, list[SubscriberPartition]] = {}
        for dispatcher, begun in entering:
            for number, begin in begun.items():
                if self._is_ours(number):
                    # After a loss the cursor begins at the oldest event that still exists, and the loss is
                    # recorded once.
                    start = begin.position if begin.lost is None else begin.lost.last
                    partition = dispatcher.add(number, start, begin.done)
                    partition.cursor.incarnation = incarnation
                    made.setdefault(number, []).append(partition)
                    if begin.lost is not None:
                        dispatcher.state.overtaken(number, begin.lost)
        for number, partitions in made.items():
            self._reader(number).place(partitions)

    def _is_ours(self, partition: int) -> bool:
        ours = self._share.partitions
        return ours is None or partition in ours

    async def _end(self, dispatcher: SubscriberDispatcher, drain_s: float, *, store: bool = True) -> None:
        await self._close_partitions(dispatcher)
        await dispatcher.stop(drain_s)
        if store:
            await storing.keep([dispatcher], self._store)

    async def _close_partitions(self, dispatcher: SubscriberDispatcher) -> None:
        for partition in dispatcher.partitions.values():
            dispatcher.close(partition)
        leaving = (self._reader(number).leave(each) for number, each in dispatcher.partitions.items())
        await asyncio.gather(*leaving)

    # -- small functions

    def _reader(self, number: int) -> PartitionReader:
        reader = self.readers.get(number)
        if reader is None:
            events, log_name = self._context.log, self.wanted.log
            reader = self.readers[number] = PartitionReader(events, log_name, number, self.index)
        return reader

    def _reindex(self) -> None:
        self.index.become([(uid, dispatcher.spec.filters) for uid, dispatcher in self.dispatchers.items()])
