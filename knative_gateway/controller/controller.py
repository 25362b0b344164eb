"""[io] The control plane: follows the store, and carries out what `reconcile` decides.

In order: logs are made, routes are given to the data plane, and only then is written what is true. Replicas need no leader: all decide the
same, writes are compare-and-set, and whoever is late finds it done.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from uuid import uuid4

import structlog

from knative_gateway.controller import happenings
from knative_gateway.controller.garbage import left_behind
from knative_gateway.controller.memo import Memo
from knative_gateway.controller.mirror import Mirror, version_of
from knative_gateway.controller.pace import Pace
from knative_gateway.controller.plan import NO_ROUTES, Figures, Happening, LogNeed, Plan, Settings, State
from knative_gateway.controller.reconcile import reconcile
from knative_gateway.controller.sources import names_of
from knative_gateway.errors import ConflictError, GatewayError
from knative_gateway.ports import Change, Checkpoints, DataPlane, EventLog, Key, ResourceStore, Routes
from knative_gateway.resources.kinds import EVENTING, MESSAGING
from knative_gateway.resources.objects import Object, name_of, uid_of
from knative_gateway.supervising import Supervisor

ROUNDS_MAX: Final = 8
"""Of one pass: an address that others refer to makes them resolve in the next round."""
LOGS_AT_ONCE: Final = 8
MEMBERS: Final = {(EVENTING, "Trigger"), (MESSAGING, "Subscription")}
SOURCES: Final = {(EVENTING, "Broker"), (MESSAGING, "Channel"), (MESSAGING, "InMemoryChannel")}

log = structlog.get_logger("knative_gateway.controller")

Counters = Callable[[], Mapping[str, Mapping[str, int]]]
"""What the data plane counted, by uid and name."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds. `settle`: changes that come so close together are one; `apply`: how long status waits for the data plane; `retry`: until
    what failed is tried again; `figures`, `logs`, `events`: between counters in status, looks whether all logs are there, and looks for old
    Event objects.
    """

    settle: float = 0.02
    apply: float = 2.0
    retry: float = 2.0
    figures: float = 30.0
    logs: float = 60.0
    events: float = 300.0


class Controller:
    """One a process. `async with` runs it; `settled` waits until all that is known is carried out."""

    def __init__(
        self,
        store: ResourceStore,
        logs: EventLog,
        data_plane: DataPlane,
        checkpoints: Checkpoints,
        settings: Settings,
        *,
        counters: Counters | None = None,
        times: Times | None = None,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        tasks: Supervisor | None = None,
    ) -> None:
        """`counters` None: status has no counters, as it must be where several replicas count."""
        self.state = State()
        self.routes: Routes = NO_ROUTES
        self._store: Final = store
        self._logs: Final = logs
        self._data_plane: Final = data_plane
        self._checkpoints: Final = checkpoints
        self._settings: Final = settings
        self._counters: Final = counters
        self._times: Final = times or Times()
        self._clock_ms: Final = clock_ms
        self._mirror: Final = Mirror(store, self._changed)
        self._wake: Final = asyncio.Event()
        self._idle: Final = asyncio.Event()
        self._listed = False
        self._gone: list[tuple[Key, Object]] = []
        self._forget: set[str] = set()
        self._dead_logs: set[tuple[str, str]] = set()
        self._applying: asyncio.Task[Mapping[str, str]] | None = None
        self._memo: Final = Memo()
        self._pace: Final = Pace()
        self._retry = False
        self._recheck = False
        self._counted: dict[str, Mapping[str, int]] = {}
        self._supervisor: Final = tasks or Supervisor()
        self._running: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Controller":
        times, keep = self._times, self._supervisor.keep
        self._running = [
            keep("controller.mirror", self._mirror.run),
            keep("controller.work", self._work),
            keep("controller.count", partial(self._every, times.figures, self.count)),
            keep("controller.check_logs", partial(self._every, times.logs, self.check_logs)),
            keep("controller.old_events", partial(self._every, times.events, self.forget_old_events)),
        ]
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._applying is not None:
            self._applying.cancel()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    @property
    def objects(self) -> Mapping[Key, Object]:
        """All objects, as far as this replica knows."""
        return self._mirror.objects

    @property
    def whole(self) -> bool:
        """All that is known is served: no log is missing, and the data plane has the latest routes."""
        return self._listed and self._idle.is_set() and self.state.applied == self.routes and not any(self.state.logs.values())

    async def settled(self) -> None:
        """Wait until everything that is known is carried out."""
        await self._idle.wait()

    def _changed(self, change: Change | None) -> None:
        self._listed = self._listed or change is None
        if change is not None and change.type == "DELETED":
            self._gone.append((change.key, change.object))
            if (change.key.group, change.key.kind) in MEMBERS:
                self._forget.add(uid_of(change.object))
            elif (change.key.group, change.key.kind) in SOURCES and self._settings.delete_logs:
                self._dead_logs.add(names_of(change.key))
        if change is None or (change.key.group, change.key.kind) != ("", "Event"):
            self._again()

    def _again(self) -> None:
        self._idle.clear()
        self._wake.set()

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(self._times.settle)
            self._wake.clear()
            if not self._listed:
                continue
            try:
                await self._pass()
            except GatewayError as error:
                log.warning("reconcile_failed", reason=str(error))
                self._later()
            if not self._wake.is_set():
                self._idle.set()

    def _later(self) -> None:
        def again() -> None:
            self._retry = True
            self._again()

        asyncio.get_running_loop().call_later(self._times.retry, again)

    async def _pass(self) -> None:
        """Until nothing new comes of it."""
        for _ in range(ROUNDS_MAX):
            plan = self._plan()
            await self._ensure(plan.logs)
            await self._apply(plan.routes)
            settled = self._plan()
            if settled.routes is not plan.routes:
                continue
            if not await self._write(settled):
                break
        await self._clean()

    def _plan(self) -> Plan:
        plan = reconcile(self._mirror.objects, self.state, self._settings, previous=self.routes, now_ms=self._clock_ms(), memo=self._memo)
        self.routes = plan.routes
        return plan

    async def _ensure(self, needs: Iterable[LogNeed]) -> None:
        """Make the logs that are not known to be there."""
        recheck, self._recheck = self._recheck, False
        missing = [need for need in needs if recheck or self.state.logs.get(need.log, "unknown") is not None]
        gate = asyncio.Semaphore(LOGS_AT_ONCE)

        async def ensure(need: LogNeed) -> str | None:
            async with gate:
                try:
                    await self._logs.ensure(need.log, partitions=need.partitions, retention_ms=need.retention_ms)
                except GatewayError as error:
                    log.warning("log_not_made", log=need.log, reason=str(error))
                    return str(error) or type(error).__name__
            return None

        if missing:
            results = await asyncio.gather(*(ensure(need) for need in missing))
            known = {**self.state.logs, **{need.log: result for need, result in zip(missing, results, strict=True)}}
            self.state = replace(self.state, logs=known)
            if any(results):
                self._later()

    async def _apply(self, routes: Routes) -> None:
        """Give the data plane its routes; if it takes long, status is written without, and this goes on."""
        if self._applying is None:
            if routes == self.state.applied and not (self.state.failing and self._retry):
                return
            self._retry = False
            self._applying = asyncio.create_task(self._data_plane.apply(routes))
            self._applying.add_done_callback(lambda task: self._applied(task, routes))
        await asyncio.wait({self._applying}, timeout=self._times.apply)
        await asyncio.sleep(0)  # its callback runs first

    def _applied(self, task: asyncio.Task[Mapping[str, str]], routes: Routes) -> None:
        self._applying = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            if not isinstance(error, GatewayError):
                log.error("data_plane_failed", exc_info=error)
            else:
                log.warning("routes_not_applied", reason=str(error))
            self._later()
            return
        failing = task.result()
        if failing:
            log.warning("subscribers_failing", **dict(list(failing.items())[:10]))
            self._later()
        changed = (self.state.applied, self.state.failing) != (routes, failing)
        self.state = replace(self.state, applied=routes, failing=failing)
        if changed:
            self._again()

    async def _write(self, plan: Plan) -> bool:
        """Whether anything was written."""
        written: set[str] = set()
        for key, object_ in plan.writes.items():
            if not self._pace.may_write(key, asyncio.get_running_loop().time()):
                log.warning("status_contested", kind=key.kind, namespace=key.namespace, name=key.name)
                self._later()
            elif await self._put(key, object_, version_of(object_)):  # what it was decided from, not what is known by now
                written.add(uid_of(object_))
        for happening in plan.happenings:
            if uid_of(happening.about) in written:  # of replicas, the one whose write it was tells of it
                await self._tell(happening)
        return bool(written)

    async def _put(self, key: Key, object_: Object | None, expected_version: int) -> bool:
        """Whether it was written; if somebody was faster, the watch tells what there is now."""
        try:
            stored = await self._store.write(key, object_, expected_version=expected_version)
        except ConflictError:
            return False
        if stored is not None and object_ is not None:
            self._mirror.take(key, stored)
        return True

    async def _tell(self, happening: Happening) -> None:
        key = happenings.key_of(happening)
        before = self._mirror.objects.get(key)
        object_ = happenings.event(happening, before, self._clock_ms(), str(uuid4()))
        about = {"kind": happening.about.get("kind"), "namespace": key.namespace, "name": name_of(happening.about)}
        log.info("resource_changed", **about, reason=happening.reason, message=happening.message)
        await self._put(key, object_, version_of(before))

    async def _clean(self) -> None:
        """What went takes others with it; positions of subscribers that the data plane has let go are forgotten."""
        gone, self._gone = self._gone, []
        for key, object_ in gone:
            for each in left_behind(self._mirror.objects, key, object_):
                await self._put(each, None, version_of(self._mirror.objects.get(each)))
        if self._applying is not None:
            return
        by_path = self.state.applied.by_path
        served = {subscriber.uid for route in by_path.values() for subscriber in route.subscribers}
        for uid in sorted(self._forget - served):
            await self._checkpoints.forget(uid)
            self._forget.discard(uid)
        for path, name in sorted(self._dead_logs):
            if path in self.routes.by_path:
                self._dead_logs.discard((path, name))  # it has a successor, whose log it is now
            elif path not in by_path:
                await self._delete_log(path, name)

    async def _delete_log(self, path: str, name: str) -> None:
        try:
            await self._logs.delete(name)
        except GatewayError as error:
            log.warning("log_not_deleted", log=name, reason=str(error))
            self._later()
            return
        log.info("log_deleted", log=name)
        self._dead_logs.discard((path, name))
        self.state = replace(self.state, logs={each: known for each, known in self.state.logs.items() if each != name})

    async def _every(self, seconds: float, do: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await do()
            except GatewayError as error:
                log.warning("store_away", reason=str(error))

    async def count(self) -> None:
        """Take what the data plane counted, and the latest failures, into status: of subscribers of which something changed."""
        counted = self._counters() if self._counters else {}
        figures: dict[str, Figures] = {}
        for subscriber in [each for route in self.routes.by_path.values() for each in route.subscribers]:
            counters = counted.get(subscriber.uid, {})
            if self._counters is None or self._counted.get(subscriber.uid) != counters:
                figures[subscriber.uid] = Figures(counters, await self._checkpoints.history(subscriber.uid))
        self._counted = {uid: dict(counters) for uid, counters in counted.items()}
        self.state = replace(self.state, figures=figures)
        if figures:
            self._again()

    async def check_logs(self) -> None:
        """See whether all logs are there, and make those that are not."""
        self._recheck = True
        self._again()

    async def forget_old_events(self) -> None:
        """Remove Event objects that have been kept long enough."""
        now_ms = self._clock_ms()
        old = [
            key for key, each in self._mirror.objects.items() if (key.group, key.kind) == ("", "Event") and happenings.is_old(each, now_ms)
        ]
        for key in old:
            await self._put(key, None, version_of(self._mirror.objects.get(key)))
