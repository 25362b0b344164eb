"""A cluster in memory: objects as clients send them, and a data plane that follows its calls, at once or
later.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from knative_gateway.controller.deciding.plan import NO_ROUTES, Figures, LogNeed, ObjectEvent, Settings
from knative_gateway.controller.deciding.reconcile import Reconciler
from knative_gateway.controller.events import of_change
from knative_gateway.errors import UnavailableError
from knative_gateway.ports import Key, Route, Routes, Subscriber
from knative_gateway.resources import admission
from knative_gateway.resources.admission import Request
from knative_gateway.resources.kinds import BUILT_IN
from knative_gateway.resources.objects import Object, at, entries, key_of, text
from knative_gateway.resources.patches import json_patches
from tests.knative_gateway.memory_log import MemoryEventLog

BASE = "http://gateway:8080"
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class State:
    """The state of logs and data plane. `logs`: for each log None if it exists, otherwise why it does not;
    `failing`, `figures`: by uid.
    """

    logs: Mapping[str, str | None] = field(default_factory=dict)
    applied: Routes = NO_ROUTES
    failing: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, Figures] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """The results of one round of reconciling."""

    writes: Mapping[Key, Object]
    routes: Mapping[str, Route]
    logs: Mapping[str, LogNeed]
    events: Sequence[ObjectEvent]


def worked_out(reconciler: Reconciler, state: State, *, now_ms: int, paths: Iterable[str] = ()) -> Plan:
    """The plan of the controller after all these changes. `paths`: those that were served before."""
    while reconciler.step(3):
        pass
    for log, need in list(reconciler.needs.items()):
        if log in state.logs:
            reconciler.log_known(log, need.owner, state.logs[log])
    for path in {*paths, *state.applied.by_path}:
        route = state.applied.by_path.get(path)
        uids = {each.uid for each in (route.subscribers if route else ())}
        reconciler.served(path, route, {uid: why for uid, why in state.failing.items() if uid in uids})
    reconciler.counted(state.figures)
    while reconciler.step(3):
        pass
    writes = reconciler.writes(1_000, now_ms)
    events = [object_event for write in writes for object_event in of_change(write.before, write.object)]
    routes = reconciler.routes()
    return Plan({write.key: write.object for write in writes}, routes.by_path, dict(reconciler.needs), events)


def anew(objects: Mapping[Key, Object], state: State, settings: Settings, *, now_ms: int) -> Plan:
    """The plan of a controller that gets all objects at once."""
    reconciler = Reconciler(objects, settings)
    for key in objects:
        reconciler.changed(key)
    plan = worked_out(reconciler, state, now_ms=now_ms)
    assert not reconciler.problems
    return plan


@dataclass
class World:
    """`works`: the data plane applies new routes and creates logs. Otherwise nothing changes."""

    settings: Settings = field(default_factory=lambda: Settings(BASE))
    objects: dict[Key, Object] = field(default_factory=dict)
    state: State = field(default_factory=State)
    routes: Routes = NO_ROUTES
    works: bool = True
    now_ms: int = NOW_MS
    plans: list[Plan] = field(default_factory=list)
    _made: int = 0

    def __post_init__(self) -> None:
        self.reconciler = Reconciler(self.objects, self.settings)
        self._heard: dict[Key, Object] = {}
        self._paths: set[str] = set()

    def send(self, object_: Mapping[str, object], *, namespace: str = "default") -> Key:
        """Create an object, or replace it if it is there."""
        kind = BUILT_IN.of(text(object_, "apiVersion"), text(object_, "kind"))
        if kind is None:
            key = replace(key_of(object_), namespace=namespace)
            self.objects[key] = object_
            return key
        name = text(object_, "metadata", "name")
        key = Key(kind.group, kind.kind, namespace, name)
        request = Request(kind, namespace, name, self.now_ms)
        if key in self.objects:
            self.objects[key] = admission.replace(request, self.objects[key], object_).object
        else:
            self._made += 1
            self.objects[key] = admission.create(request, object_, uid=f"uid-{self._made}").object
        return key

    def patch(self, key: Key, change: Mapping[str, object]) -> None:
        """Apply a merge patch."""
        kind = next(each for each in BUILT_IN.kinds if (each.group, each.kind) == (key.group, key.kind))
        request = Request(kind, key.namespace, key.name, self.now_ms)
        self.objects[key] = admission.patch(request, self.objects[key], json_patches.MERGE, change).object

    def delete(self, key: Key) -> None:
        """The object was deleted."""
        del self.objects[key]

    def step(self) -> Plan:
        """Reconcile the changes once, and carry out the results."""
        for key in self._heard.keys() | self.objects.keys():
            if self._heard.get(key) is not self.objects.get(key):
                self.reconciler.changed(key)
        self._heard = dict(self.objects)
        plan = worked_out(self.reconciler, self.state, now_ms=self.now_ms, paths=self._paths)
        assert not self.reconciler.problems
        fresh = anew(self.objects, self.state, self.settings, now_ms=self.now_ms)
        assert (plan.routes, plan.logs) == (fresh.routes, fresh.logs), "a change was overlooked"
        assert plan.writes == fresh.writes, "a change was overlooked"
        self.objects.update(plan.writes)
        self.routes = self.reconciler.routes()
        self._paths = set(self.state.applied.by_path)
        if self.works:
            logs = {
                **dict.fromkeys(plan.logs, None),
                **{log: why for log, why in self.state.logs.items() if why},
            }
            self.state = replace(self.state, logs=logs, applied=self.routes)
        self.plans.append(plan)
        return plan

    def settle(self) -> "World":
        """Reconcile until nothing changes any more."""
        for _ in range(10):
            before = self.routes, self.state
            if not self.step().writes and before == (self.routes, self.state):
                return self
        raise AssertionError(f"it does not come to rest: {self.plans[-1].writes}")

    def status(self, key: Key) -> Mapping[str, object]:
        """Return the status of an object."""
        found = at(self.objects[key], "status")
        return found if isinstance(found, Mapping) else {}

    def conditions(self, key: Key) -> dict[str, str]:
        """Return the status of each condition, by type."""
        return {text(each, "type"): text(each, "status") for each in entries(self.status(key), "conditions")}

    def ready(self, key: Key) -> tuple[str, str]:
        """Status and reason of Ready."""
        for each in entries(self.status(key), "conditions"):
            if text(each, "type") == "Ready":
                return text(each, "status"), text(each, "reason")
        return "", ""

    def subscriber(self, key: Key) -> Subscriber | None:
        """Return what the data plane receives for a Trigger or Subscription."""
        uid = text(self.objects[key], "metadata", "uid")
        found = [
            each for route in self.routes.by_path.values() for each in route.subscribers if each.uid == uid
        ]
        assert len(found) <= 1
        return found[0] if found else None


class Logs(MemoryEventLog):
    """`away`: no log can be created."""

    away = False

    async def ensure(self, log: str, *, partitions: int, retention_ms: int | None) -> int:
        if self.away:
            raise UnavailableError("the node is away")
        return await super().ensure(log, partitions=partitions, retention_ms=retention_ms)

    async def delete(self, log: str) -> None:
        if self.away:
            raise UnavailableError("the node is away")
        await super().delete(log)


def made(
    api_version: str, kind: str, name: str, spec: Mapping[str, object] | None = None, **annotations: str
) -> dict[str, object]:
    """An object as a client sends it."""
    metadata: dict[str, object] = {"name": name, **({"annotations": annotations} if annotations else {})}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": metadata,
        **({} if spec is None else {"spec": spec}),
    }


def broker(
    name: str = "b", spec: Mapping[str, object] | None = None, **annotations: str
) -> dict[str, object]:
    return made("eventing.knative.dev/v1", "Broker", name, spec or {}, **annotations)


def trigger(
    name: str = "t", *, to: Mapping[str, object] | str = "http://there/", of: str = "b", **spec: object
) -> dict[str, object]:
    return made(
        "eventing.knative.dev/v1",
        "Trigger",
        name,
        {"broker": of, "subscriber": {"uri": to} if isinstance(to, str) else to, **spec},
    )


def channel(
    name: str = "c", spec: Mapping[str, object] | None = None, *, kind: str = "Channel"
) -> dict[str, object]:
    return made("messaging.knative.dev/v1", kind, name, spec or {})


def subscription(
    name: str = "s", *, of: str = "c", kind: str = "Channel", **spec: object
) -> dict[str, object]:
    reference = {"apiVersion": "messaging.knative.dev/v1", "kind": kind, "name": of}
    return made(
        "messaging.knative.dev/v1",
        "Subscription",
        name,
        {"channel": reference, **(spec or {"subscriber": {"uri": "http://there/"}})},
    )


def service(name: str, spec: Mapping[str, object] | None = None) -> dict[str, object]:
    return made("v1", "Service", name, spec or {})


def ref(name: str, kind: str = "Service", api_version: str = "v1", **more: str) -> dict[str, object]:
    """A Destination's reference."""
    return {"ref": {"apiVersion": api_version, "kind": kind, "name": name, **more}}


def addressable(
    name: str, url: str = "", kind: str = "Service", api_version: str = "serving.knative.dev/v1"
) -> dict[str, object]:
    """An object of a kind that a stored definition declares."""
    status = {"address": {"url": url}} if url else {}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "uid": f"of-{name}"},
        "status": status,
    }
