"""[io] The control plane: it follows the store, and carries out what `Reconciler` decides.

The work is proportional to the size of a change, and is done in slices. An object does not wait for the log
or the subscriber of another object. A status is written only after it is true.

Replicas do not need a leader. All replicas compute the same results, and all writes are compare-and-set: a
slow replica finds that its work is already done. Of the workers of one gateway, only the leader writes
statuses, creates and deletes logs, and removes objects. The others compute their routes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

import structlog

from knative_gateway.controller import events
from knative_gateway.controller.deciding.plan import NO_ROUTES, Figures, Settings, Write
from knative_gateway.controller.deciding.reconcile import Reconciler
from knative_gateway.controller.deciding.relations import MEMBERS, SOURCES
from knative_gateway.controller.deciding.sources import log_of, names_of
from knative_gateway.controller.garbage import Belongings
from knative_gateway.controller.log_keeping import LogKeeper
from knative_gateway.controller.mirror import Mirror, version_of
from knative_gateway.controller.pace import Pace
from knative_gateway.controller.reporting import event_objects
from knative_gateway.errors import GatewayError
from knative_gateway.ports import Change, CursorStore, DataPlane, EventLog, Key, ResourceStore, Routes
from knative_gateway.resources.kinds import GATEWAY, LOG
from knative_gateway.resources.objects import Object, uid_of
from knative_gateway.running.supervising import Supervisor

SLICE: Final = 50
"""Results that are computed before other tasks run: a few milliseconds."""
WRITES_AT_ONCE: Final = 50
"""Objects that are written in one transaction."""

log = structlog.get_logger("knative_gateway.controller")

Counters = Callable[[], Mapping[str, Mapping[str, int]]]
"""Returns the counters of the data plane, by uid and name."""


@dataclass(frozen=True, slots=True)
class Times:
    """Times in seconds.

    - `settle`: changes within this time are processed together.
    - `apply`: how long `settled` waits for the data plane.
    - `retry`: the pause before a retry.
    - `figures`: the time between two updates of the counters in statuses.
    - `logs`: the time between two checks that all logs exist.
    - `events`: the time between two removals of old Event objects.
    """

    settle: float = 0.02
    apply: float = 2.0
    retry: float = 2.0
    figures: float = 30.0
    logs: float = 60.0
    events: float = 300.0


class Controller:
    """The controller of one process. `async with` runs it; `settled` waits until all known changes are
    carried out.
    """

    def __init__(
        self,
        store: ResourceStore,
        logs: EventLog,
        data_plane: DataPlane,
        cursors: CursorStore,
        settings: Settings,
        *,
        counters: Counters | None = None,
        leads: bool = True,
        times: Times | None = None,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        tasks: Supervisor | None = None,
    ) -> None:
        """`counters` None: statuses have no counters, because each replica would count only its own
        deliveries. `leads` False: only follow the objects until `lead` is called.
        """
        self.leads = leads
        self.routes: Routes = NO_ROUTES
        self._store: Final = store
        self._data_plane: Final = data_plane
        self._cursors: Final = cursors
        self._counters: Final = counters
        self._times: Final = times or Times()
        self._clock_ms: Final = clock_ms
        self._mirror: Final = Mirror(store, self._changed)
        self._reconciler: Final = Reconciler(self._mirror.objects, settings)
        self._belongings: Final = Belongings()
        self._logs: Final = LogKeeper(
            logs,
            store,
            self._mirror.objects,
            self._reconciler.needs,
            is_served=lambda path: data_plane.served(path) is not None,
            report=self._log_known,
            took=self._took,
            deletes=settings.delete_logs,
            leads=lambda: self.leads,
            retry_s=self._times.retry,
        )
        self._wake: Final = asyncio.Event()
        self._idle: Final = asyncio.Event()
        self._listed = False
        self._unserved: Final[dict[str, None]] = {}
        """Paths whose latest route the data plane does not serve yet."""
        self._unserved_until = 0.0
        self._gone: list[tuple[Key, Object]] = []
        self._forget: set[str] = set()
        self._pace: Final = Pace()
        self._counted: dict[str, Mapping[str, int]] = {}
        self._supervisor: Final = tasks or Supervisor()
        self._running: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Controller":
        times, keep = self._times, self._supervisor.keep
        self._data_plane.on_change = self._served
        self._logs.start(self._supervisor)
        self._running = [
            keep("controller.mirror", self._mirror.run),
            keep("controller.work", self._work),
            keep("controller.count", partial(self._every, times.figures, self.count)),
            keep("controller.check_logs", partial(self._every, times.logs, self.check_logs)),
            keep("controller.old_events", partial(self._every, times.events, self.forget_old_events)),
        ]
        return self

    async def __aexit__(self, *_exc: object) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._logs.close()

    def lead(self) -> None:
        """Write statuses and keep logs from now on: the former leader has ended."""
        if not self.leads:
            log.info("controller_leads")
            self.leads = True
            for key in self._mirror.objects:
                self._reconciler.write_again(key)
                if (key.group, key.kind) == (GATEWAY, LOG):
                    self._logs.tend(key.name)  # its owner may have been deleted meanwhile
            self._tend_all()
            self._again()

    @property
    def objects(self) -> Mapping[Key, Object]:
        """All objects that this replica knows."""
        return self._mirror.objects

    @property
    def lacking(self) -> str | None:
        """What is not served yet; None if all logs exist and the data plane serves the latest routes."""
        problem = self._logs.problem or next((f"{path} is not served" for path in self._unserved), None)
        return problem or (None if self._listed and self._idle.is_set() else "changes are being processed")

    async def settled(self) -> None:
        """Wait until all known changes are carried out, but at most `Times.apply` for the data plane."""
        await self._idle.wait()

    # -- what changed

    def _changed(self, change: Change | None) -> None:
        if change is None:
            # Nothing is carried out before the first list: a Broker that is not known yet would look deleted.
            self._listed = True
            for key, object_ in self._mirror.objects.items():
                self._note(key, object_)
        else:
            gone = change.type == "DELETED"
            if gone:
                self._gone.append((change.key, change.object))
                # At once, not with the next reconciliation: an event that is accepted now would be deleted
                # with the log.
                self._data_plane.removed((change.object,))
                if (change.key.group, change.key.kind) in MEMBERS:
                    # Only noted here. The cursors are removed when the data plane has released the
                    # subscriber, because it stores them once more at its end.
                    self._forget.add(uid_of(change.object))
            self._note(change.key, None if gone else change.object)
        self._again()

    def _note(self, key: Key, object_: Object | None) -> None:
        self._belongings.note(key, object_)
        self._reconciler.changed(key)
        if (key.group, key.kind) in SOURCES and object_ is None:
            self._logs.tend(names_of(key)[1])
        elif (key.group, key.kind) == (GATEWAY, LOG):
            self._logs.tend(key.name)

    def _took(self, key: Key, stored: Object | None) -> None:
        """Use our own write at once. The watch reports it again later."""
        if stored is None:
            self._mirror.objects.pop(key, None)
        else:
            self._mirror.take(key, stored)
        self._belongings.note(key, stored)
        self._reconciler.changed(key)

    def _log_known(self, name: str, owner: str, problem: str | None, of_predecessor: bool) -> None:
        self._reconciler.log_known(name, owner, problem, of_predecessor=of_predecessor)
        self._again()

    def _served(self, path: str) -> None:
        """Called by the data plane: the served state of a path changed."""
        route, failing = self._data_plane.served(path), self._data_plane.failing(path)
        self._reconciler.served(path, route, failing)
        # Identity is enough, and cheap: the data plane returns the route that it was given.
        if route is self.routes.by_path.get(path):
            self._unserved.pop(path, None)
        if route is None:
            self._logs.tend(log_of(path))
        self._again()

    def _again(self) -> None:
        self._idle.clear()
        self._wake.set()

    def _later(self) -> None:
        asyncio.get_running_loop().call_later(self._times.retry, self._again)

    # -- carrying out

    async def _work(self) -> None:
        self._wake.set()  # a former run of this task may not have finished
        while True:
            await self._next()
            self._wake.clear()
            if not self._listed:
                continue
            try:
                await self._carry_out()
            except GatewayError as error:
                log.warning("reconcile_failed", reason=str(error))
                self._later()
            is_served = not self._unserved or asyncio.get_running_loop().time() >= self._unserved_until
            # A change that arrived meanwhile has set `_wake`: then the state is not settled.
            if not self._wake.is_set() and self._logs.is_idle and is_served:
                self._idle.set()

    async def _next(self) -> None:
        """Wait for a change, or until the wait for the data plane ends."""
        loop = asyncio.get_running_loop()
        waiting = bool(self._unserved) and not self._idle.is_set()
        try:
            async with asyncio.timeout_at(
                max(self._unserved_until, loop.time() + self._times.settle) if waiting else None
            ):
                await self._wake.wait()
        except TimeoutError:
            return
        # A client that applies a file sends many changes in a row. They are computed together, with one new
        # set of routes.
        await asyncio.sleep(self._times.settle)

    async def _carry_out(self) -> None:
        """Repeat all steps until no work is left, because each step may cause work for the others."""
        while True:
            while self._reconciler.step(SLICE):  # noqa: ASYNC110  it is work, not waiting
                await asyncio.sleep(0)  # other tasks run in between
            self._report_problems()
            # Before the writes: a status may say Ready only after the data plane serves the route.
            self._use_routes()
            self._tend_logs()
            await self._write(self._reconciler.writes(WRITES_AT_ONCE, self._clock_ms()))
            if self._reconciler.is_done:
                break
        await self._clean()

    def _report_problems(self) -> None:
        for problem in self._reconciler.problems:
            key = problem.key
            log.error(
                "reconcile_failed",
                kind=key.kind,
                namespace=key.namespace,
                name=key.name,
                exc_info=problem.error,
            )
        self._reconciler.problems.clear()

    def _use_routes(self) -> None:
        routes, before = self._reconciler.routes(), self.routes
        if routes is before:
            return
        self.routes = routes
        changed = {path for path, route in routes.by_path.items() if before.by_path.get(path) is not route}
        self._unserved.update(dict.fromkeys(changed | (before.by_path.keys() - routes.by_path.keys())))
        # A subscriber whose log does not answer must not keep `settled` waiting without end.
        self._unserved_until = asyncio.get_running_loop().time() + self._times.apply
        self._data_plane.use(routes)

    def _tend_logs(self) -> None:
        needs = self._reconciler.needs
        for name in self._reconciler.new_needs:
            if name not in needs:
                self._reconciler.log_gone(name)
            self._logs.tend(name)
        self._reconciler.new_needs.clear()

    async def _write(self, writes: Sequence[Write]) -> None:
        """Store the objects, and create Event objects for the writes that succeeded.

        Of several replicas, only the one whose write succeeded creates the Event object.
        """
        if not self.leads:
            return
        planned: dict[Key, tuple[Object, int]] = {}
        now_s = asyncio.get_running_loop().time()
        for write in writes:
            if self._pace.may_write(write.key, now_s):
                # The version from which the status was computed. If it is old by now, the write is refused.
                planned[write.key] = write.object, version_of(write.object)
            else:
                log.warning(
                    "status_contested",
                    kind=write.key.kind,
                    namespace=write.key.namespace,
                    name=write.key.name,
                )
                self._write_later(write.key)
        try:
            # A write that lost the race against another replica is not an error: the watch reports the other
            # version, and the object is computed again.
            stored = await self._put(planned)
        except GatewayError:
            for key in planned:
                self._reconciler.write_again(key)
            raise
        done = [write for write in writes if write.key in stored]
        await self._put(event_objects(done, self._mirror.objects, self._clock_ms()))

    def _write_later(self, key: Key) -> None:
        def again() -> None:
            self._reconciler.write_again(key)
            self._again()

        asyncio.get_running_loop().call_later(self._times.retry, again)

    async def _put(self, planned: Mapping[Key, tuple[Object, int]]) -> Mapping[Key, Object]:
        """Store the objects whose version is still current. The watch reports the other objects."""
        if not planned:
            return {}
        try:
            stored = await self._store.update(planned)
        except GatewayError:
            raise
        except Exception as error:
            if len(planned) > 1:  # one of them cannot be stored: the others can
                return {
                    key: each
                    for one in planned.items()
                    for key, each in (await self._put(dict([one]))).items()
                }
            (key,) = planned
            log.error(
                "object_not_stored", kind=key.kind, namespace=key.namespace, name=key.name, exc_info=error
            )
            return {}
        for key, object_ in stored.items():
            self._took(key, object_)
        return stored

    async def _clean(self) -> None:
        """Remove the dependents of deleted objects, and the cursors of subscribers that the data plane has
        released.
        """
        gone, self._gone = self._gone, []
        try:
            for key, object_ in gone if self.leads else ():
                await self._remove(self._belongings.left_behind(key, object_))
        except GatewayError:
            self._gone += gone
            raise
        # A copy, because the set changes in the loop.
        for uid in [each for each in self._forget if not self._reconciler.serves(each)]:
            await self._cursors.forget(uid)
            self._forget.discard(uid)

    async def _remove(self, keys: Sequence[Key]) -> None:
        left = iter(keys)
        while part := list(islice(left, WRITES_AT_ONCE)):
            await self._store.remove({key: version_of(self._mirror.objects.get(key)) for key in part})

    # -- periodic tasks

    async def _every(self, seconds: float, do: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await do()
            except GatewayError as error:
                log.warning("store_away", reason=str(error))

    async def count(self) -> None:
        """Copy counters and latest failures from the data plane to the statuses of subscribers.

        Only subscribers whose counters changed are updated.
        """
        if not self.leads:
            return
        counted = self._counters() if self._counters else {}
        figures: dict[str, Figures] = {}
        for subscriber in [each for route in self.routes.by_path.values() for each in route.subscribers]:
            counters = counted.get(subscriber.uid, {})
            # A write for each subscriber every 30 seconds would fill the table of changes and wake all
            # watches.
            if self._counters is None or self._counted.get(subscriber.uid) != counters:
                figures[subscriber.uid] = Figures(counters, await self._cursors.history(subscriber.uid))
        self._counted = {uid: dict(counters) for uid, counters in counted.items()}
        self._reconciler.counted(figures)
        if figures:
            self._again()

    async def check_logs(self) -> None:
        """Create the logs that do not exist."""
        self._tend_all()
        self._again()

    def _tend_all(self) -> None:
        for name in self._reconciler.needs:
            self._logs.tend(name)

    async def forget_old_events(self) -> None:
        """Remove Event objects that are too old, and the oldest ones if there are too many."""
        if not self.leads:
            return
        stored = [
            (key, each)
            for key, each in self._mirror.objects.items()
            if (key.group, key.kind) == ("", "Event")
        ]
        await self._remove(events.old(stored, self._clock_ms()))
