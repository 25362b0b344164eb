"""[io] One Broker or Channel: its partitions' readers and its subscribers' couriers, kept as the latest route wants them.

Laws: a change of the route loses nothing that is on its way; a subscriber is served from its durable place, and only then said to be; one
that comes back under the same uid begins when its predecessor has ended.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import structlog

from knative_gateway.dispatcher import history, places, positions
from knative_gateway.dispatcher.figures import Figures, Lag
from knative_gateway.dispatcher.ownership import Ownership
from knative_gateway.dispatcher.places import Begin
from knative_gateway.dispatcher.reader import PartitionReader
from knative_gateway.dispatcher.subscribers.courier import Courier
from knative_gateway.dispatcher.subscribers.recording import Outside
from knative_gateway.dispatcher.subscribers.traced import courier_class
from knative_gateway.dispatcher.subscribers.track import Track
from knative_gateway.errors import GatewayError
from knative_gateway.filters import FilterError, Index
from knative_gateway.ports import Checkpoints, Range, Route, Subscriber

log = structlog.get_logger(__name__)

LEAVING_S: Final = 2.0
"""How long the answers of a subscriber that was removed are waited for."""
_AGAIN_S: Final = 1.0


class RouteWorker:
    """Serves one route until it is closed. `changed` is called when `served` or `failing` are others."""

    def __init__(self, route: Route, outside: Outside, checkpoints: Checkpoints, ownership: Ownership, changed: Callable[[], None]) -> None:
        self.wanted = route
        self.served: Route | None = None
        self.failing: Mapping[str, str] = {}
        self.couriers: Final[dict[str, Courier]] = {}
        self.readers: Final[dict[int, PartitionReader]] = {}
        self._outside: Final = outside
        self._checkpoints: Final = checkpoints
        self._changed: Final = changed
        self._index: Index[str] = Index([])
        self._ends: Mapping[int, str] = {}
        self._incarnation = ""
        self._figures: dict[str, Figures] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._wake: Final = asyncio.Event()
        self._turn: Final = asyncio.Lock()
        self._share: Final = ownership.share(route.log, self._wake.set)
        self._followed = self._share.partitions
        self._task: Final = asyncio.create_task(self._run())

    @property
    def partitions(self) -> Collection[int]:
        """Those whose events it delivers now."""
        return {partition for courier in list(self.couriers.values()) for partition in list(courier.tracks)}

    def use(self, route: Route) -> None:
        """Become this; `served` says when."""
        self.wanted = route
        self._wake.set()

    async def close(self) -> None:
        """The route was removed. The places are kept as they are now, since they may be forgotten later."""
        await self._halt()
        async with self._turn:
            await keep(list(self.couriers.values()), self._checkpoints)
            await self._end_all(LEAVING_S)
        await self.leave()

    async def end(self, drain_s: float) -> Sequence[Courier]:
        """Wait so long for answers. The places of these are to be kept, and then `leave` is to be called."""
        await self._halt()
        async with self._turn:
            return await self._end_all(drain_s)

    async def leave(self) -> None:
        """Leave the partitions to others."""
        await self._share.close()

    async def _halt(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _end_all(self, drain_s: float) -> Sequence[Courier]:
        couriers = list(self.couriers.values())
        self.couriers.clear()
        await asyncio.gather(*(self._end(courier, drain_s, keep_it=False) for courier in couriers), *self._leaving.values())
        await asyncio.gather(*(reader.close() for reader in self.readers.values()))
        return couriers

    async def replay(self, uid: str, to: Mapping[int, str]) -> None:
        """Have a subscriber go back or forth to these places, in our partitions at once, elsewhere soon; what is on its way ends first.

        Raises:
            KeyError: this subscriber is not served here.
            UnavailableError: the store is away; if the places were kept, it goes there later.
        """
        async with self._turn:
            spec = self.couriers[uid].spec
            await places.ask(uid, to, self._checkpoints)
            await self._again(spec)

    async def go_where_asked(self, uid: str, partitions: Iterable[int]) -> None:
        """Another replica was asked to have a subscriber go to other places in these partitions: do so where they are ours."""
        async with self._turn:
            if uid in self.couriers and any(self._is_ours(partition) for partition in partitions):
                await self._again(self.couriers[uid].spec)

    async def _again(self, spec: Subscriber) -> None:
        """End, and begin where it is to go."""
        try:
            await self._end(self.couriers.pop(spec.uid), LEAVING_S)
            self.failing = {**self.failing, **await self._enter([spec])}
        finally:
            self._wake.set()  # whatever happened, it is to be served

    async def look(self) -> bool:
        """See where the log ends now, for the lag; whether it is another log than the one that is served."""
        if not self.couriers:
            return False
        try:
            extents = await self._outside.log.extents(self.wanted.log)
        except GatewayError:
            return False
        self._ends = {partition: positions.stored(end) for partition, end in extents.last.items()}
        return bool(self._incarnation and extents.incarnation and extents.incarnation != self._incarnation)

    async def begin_again(self) -> None:
        """The log was deleted and made again: deliver all that is in the new one.

        Positions of the former log are not kept meanwhile: they would hide events of the new one.
        """
        async with self._turn:
            log.error("log_made_again", log=self.wanted.log, words="its events are delivered from the first one")
            couriers = list(self.couriers.values())
            self.couriers.clear()
            try:
                await asyncio.gather(*(self._end(courier, LEAVING_S, keep_it=False) for courier in couriers))
                await asyncio.gather(*(reader.close() for reader in self.readers.values()))
                self.readers.clear()
                self.failing = {**self.failing, **await self._enter([courier.spec for courier in couriers], anew=True)}
                for courier in self.couriers.values():
                    courier.log_made_again()
            finally:
                self._wake.set()  # in any case they are to be served

    def lag(self, courier: Courier, now_ms: int) -> Lag:
        """How far a subscriber is behind; the end of the log is known as of the last look, or the latest reading.

        It changes nothing, so that another thread may ask.
        """
        events, oldest = 0, now_ms
        for partition, track in list(courier.tracks.items()):
            end = max(self._ends.get(partition, positions.BEGINNING), track.reader.passed)
            behind = positions.distance(track.reached, end) or 0
            events += behind
            if behind:
                oldest = min(oldest, track.oldest_ms or track.passed_ms or now_ms)
        return Lag(events, (now_ms - oldest) / 1000)

    # -- becoming what is wanted

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            wanted = self.wanted
            try:
                async with self._turn:
                    self.failing = await self._become(wanted)
                    self.served = wanted
            except Exception as error:
                # A fault of ours: others are served on, and this is tried again.
                log.exception("route_not_served", path=wanted.path)
                self.failing = {subscriber.uid: f"internal error: {error!r}" for subscriber in wanted.subscribers}
            self._leaving = {uid: task for uid, task in self._leaving.items() if not task.done()}
            self._changed()
            try:
                async with asyncio.timeout(_AGAIN_S if self.failing else None):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _become(self, wanted: Route) -> Mapping[str, str]:
        """Let go of whom is gone, take in whom is new, change the others; those that could not be taken in, and why."""
        subscribers = {subscriber.uid: subscriber for subscriber in wanted.subscribers}
        # Kept now and not later, when its place may have been forgotten.
        await keep([courier for uid, courier in self.couriers.items() if uid not in subscribers], self._checkpoints)
        for uid, courier in list(self.couriers.items()):
            spec = subscribers.get(uid)
            if spec is None:
                self._figures.pop(uid, None)
                self._leaving[uid] = asyncio.create_task(self._end(self.couriers.pop(uid), LEAVING_S, keep_it=False))
            elif spec.order is not courier.spec.order:
                self._leaving[uid] = asyncio.create_task(self._end(self.couriers.pop(uid), LEAVING_S))
        failing: dict[str, str] = {}
        for uid, courier in self.couriers.items():
            if subscribers[uid] != courier.spec:
                courier.update(subscribers[uid])
        self._reindex()
        failing |= await self._follow_share()
        failing |= await self._enter(subscriber for uid, subscriber in subscribers.items() if uid not in self.couriers)
        return failing

    async def _enter(self, subscribers: Iterable[Subscriber], *, anew: bool = False) -> Mapping[str, str]:
        """Take these in; those that could not be, and why. `anew`: as `places.begin` says."""
        failing: dict[str, str] = {}
        made: dict[str, Courier] = {}
        for spec in subscribers:
            leaving = self._leaving.pop(spec.uid, None)
            if leaving is not None:
                await leaving
            try:
                courier = courier_class(traced=self._outside.settings.traces is not None)
                made[spec.uid] = courier(spec, self._outside, self._figures.setdefault(spec.uid, Figures()))
            except FilterError as error:
                failing[spec.uid] = str(error)
        begun: dict[str, Mapping[int, Begin]] = {}
        if made:
            begun, failed = await self._begin([courier.spec for courier in made.values()], anew=anew)
            failing |= failed
        for uid, reason in failing.items():
            log.warning("subscriber_not_served", log=self.wanted.log, uid=uid, reason=reason)
        self.couriers.update((uid, made[uid]) for uid in begun)
        try:
            self._reindex()
            self._place([(made[uid], places_of) for uid, places_of in begun.items()])
        except BaseException:
            # A subscriber without tracks does not count as served.
            for uid in begun:
                del self.couriers[uid]
                await asyncio.gather(*(track.close() for track in made[uid].tracks.values()))
            self._reindex()
            raise
        return failing

    async def _begin(self, specs: Sequence[Subscriber], *, anew: bool = False) -> tuple[dict[str, Mapping[int, Begin]], Mapping[str, str]]:
        """Where they begin, in our partitions that they are not in yet; and who cannot, and why.

        What was asked for in a partition that a subscriber is in already is left for when it begins anew.
        """

        def ours(uid: str, partition: int) -> bool:
            courier = self.couriers.get(uid)
            return self._is_ours(partition) and (courier is None or partition not in courier.tracks)

        async def begin(some: Sequence[Subscriber]) -> Mapping[str, Mapping[int, Begin]]:
            events, checkpoints = self._outside.log, self._checkpoints
            return await places.begin(some, extents, self.wanted.log, ours, events=events, checkpoints=checkpoints, anew=anew)

        try:
            extents = await self._outside.log.extents(self.wanted.log)
        except GatewayError as error:
            return {}, {spec.uid: str(error) for spec in specs}
        if not self.couriers:  # else it is that of the log that they are served from, and `look` finds out
            self._incarnation = extents.incarnation
        try:
            return dict(await begin(specs)), {}
        except Exception as error:  # noqa: BLE001  it is told below
            if len(specs) == 1:
                return {}, {specs[0].uid: self._reason(error)}
        # One that cannot begin must not keep the others from it.
        begun: dict[str, Mapping[int, Begin]] = {}
        failing: dict[str, str] = {}
        for spec in specs:
            try:
                begun |= await begin([spec])
            except Exception as error:  # noqa: BLE001  it is told
                failing[spec.uid] = self._reason(error)
        return begun, failing

    @staticmethod
    def _reason(error: Exception) -> str:
        if isinstance(error, GatewayError):
            return str(error)
        log.error("subscriber_fault", exc_info=error)
        return f"internal error: {error!r}"

    async def _follow_share(self) -> Mapping[str, str]:
        """Let go of partitions that are another's now, and take up those that have become ours, from where their last owner was."""
        ours = self._share.partitions
        if ours == self._followed:
            return {}
        failing: Mapping[str, str] = {}
        released = [
            (courier, partition) for courier in self.couriers.values() for partition in courier.tracks if not self._is_ours(partition)
        ]
        tracks = await asyncio.gather(*(courier.release(partition, LEAVING_S) for courier, partition in released))
        await keep([courier for courier, _ in released], self._checkpoints, tracks)
        if self.couriers:
            begun, failing = await self._begin([courier.spec for courier in self.couriers.values()])
            gained = {uid: {p: place for p, place in each.items() if p not in self.couriers[uid].tracks} for uid, each in begun.items()}
            self._place([(self.couriers[uid], each) for uid, each in gained.items()])
        if not failing:
            self._followed = ours
        return failing

    def _place(self, entering: Sequence[tuple[Courier, Mapping[int, Begin]]]) -> None:
        """Give them their tracks in our partitions, and the tracks their readers."""
        tracks: dict[int, list[Track]] = {}
        for courier, begun in entering:
            for partition, begin in begun.items():
                if self._is_ours(partition):
                    position = begin.position if begin.lost is None else begin.lost.last
                    courier.tracks[partition] = track = Track(courier, self._reader(partition), position, begin.done)
                    tracks.setdefault(partition, []).append(track)
                    if begin.lost is not None:
                        courier.overtaken(partition, begin.lost)
        for partition, placed in tracks.items():
            self._reader(partition).place(placed)

    def _is_ours(self, partition: int) -> bool:
        ours = self._share.partitions
        return ours is None or partition in ours

    async def _end(self, courier: Courier, drain_s: float, *, keep_it: bool = True) -> None:
        await asyncio.gather(*(track.close() for track in courier.tracks.values()))
        await courier.stop(drain_s)
        if keep_it:
            await keep([courier], self._checkpoints)

    # -- small ones

    def _reader(self, partition: int) -> PartitionReader:
        reader = self.readers.get(partition)
        if reader is None:
            reader = self.readers[partition] = PartitionReader(self._outside.log, self.wanted.log, partition, lambda: self._index)
        return reader

    def _reindex(self) -> None:
        self._index = Index([(uid, courier.spec.filters) for uid, courier in self.couriers.items()])


async def keep(couriers: Sequence[Courier], checkpoints: Checkpoints, tracks: Sequence[Track] | None = None) -> None:
    """Keep the places in these tracks, None: in all, and the histories of subscribers that end: few transactions, however many they are."""
    places_now: dict[tuple[str, int], str] = {}
    done: dict[tuple[str, int], Sequence[Range]] = {}
    for track in [track for courier in couriers for track in courier.tracks.values()] if tracks is None else tracks:
        try:
            places_now[track.key], done[track.key] = track.position(), track.done
        except Exception:
            # A fault of ours with one subscriber must not keep others from ending.
            log.exception("places_not_kept", uid=track.key[0])
    try:
        await checkpoints.save(places_now, done)
        await history.keep(((courier.spec.uid, courier.history) for courier in couriers), checkpoints.record)
    except GatewayError as error:
        log.warning("places_not_kept", subscribers=len(couriers), reason=str(error))
    except Exception:
        log.exception("places_not_kept", subscribers=len(couriers))
