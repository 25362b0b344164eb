"""All objects and what the data plane has done -> status of each, routes, logs, and what is to be told. Pure and total.

Laws: the same input gives the same plan; a plan that is carried out, with nothing else changed, is followed by one without writes;
`observedGeneration` and `conditions` are written together. Spec: knative-eventing-test-spec, "Control Plane Assertions".
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from knative_gateway.addressing import Addressing, Lookup
from knative_gateway.controller import statuses
from knative_gateway.controller.memo import Memo, nothing
from knative_gateway.controller.plan import Happening, Plan, Settings, State
from knative_gateway.controller.snapshot import Snapshot
from knative_gateway.controller.sources import Source, readiness, source, upkeep
from knative_gateway.controller.subscribers import Member, Parent, Served, member, parent_of
from knative_gateway.ports import Key, Route, Routes
from knative_gateway.resources.conditions import READY, Condition, is_ready
from knative_gateway.resources.kinds import EVENTING, EXTENSIONS, MESSAGING
from knative_gateway.resources.objects import Object, entries, same, text, timestamp, uid_of


def reconcile(
    objects: Mapping[Key, Object],
    state: State,
    settings: Settings,
    *,
    previous: Routes,
    now_ms: int,
    memo: Memo | None = None,
) -> Plan:
    """What is to be done. `previous`: the routes of the last plan; `now_ms`: since 1970 UTC, for transition times.

    `memo`: of the passes before, with the same settings; it makes this faster and nothing else.
    """
    this = _Pass(Snapshot(objects), state, settings, Memo() if memo is None else memo, timestamp(now_ms))
    sources = this.sources()
    lookup = partial(_published, objects, sources)
    parents = {key: this.parent(each, lookup) for key, each in sources.items()}
    members = this.members(parents, lookup)
    by_parent: dict[Key, list[Member]] = {key: [] for key in parents}
    for each in members:
        if each.parent is not None:
            by_parent[each.parent.source.key].append(each)
    writes = dict(this.writes(parents, by_parent, members))
    this.memo.forget_unused()
    served = [each for each in sources.values() if each.served]
    return Plan(
        writes=writes,
        routes=_routes(served, by_parent, previous),
        logs=[each.log.need for each in served],
        happenings=[happening for key, new in writes.items() for happening in _happenings(objects[key], new)],
    )


def _published(objects: Mapping[Key, Object], sources: Mapping[Key, Source], key: Key) -> Object | None:
    """An object as others see it: Brokers and Channels with the addresses that they have by now."""
    found = sources.get(key)
    return objects.get(key) if found is None else found.published


@dataclass(frozen=True, slots=True)
class _Pass:
    """Once over everything; what did not change since the last time comes from the memo."""

    snapshot: Snapshot
    state: State
    settings: Settings
    memo: Memo
    now: str

    def sources(self) -> dict[Key, Source]:
        """Brokers and Channels."""
        found: dict[Key, Source] = {}
        for key in self.snapshot.sources():
            object_ = self.snapshot.objects[key]
            kept = upkeep(key, object_, self.state)
            inputs = (object_, kept.log_problem, kept.routed)
            make = partial(source, key, object_, self.settings, kept)
            found[key] = self.memo.of("source", key, inputs, self.snapshot.get, make)
        return found

    def parent(self, source_: Source, lookup: Lookup) -> Parent:
        """One of them, with what it lets inherit."""

        def make(looked_up: Lookup) -> Parent:
            delivery = source_.delivery(self._addressing(looked_up))
            return Parent(source_, readiness(source_, delivery), delivery)

        return self.memo.of("parent", source_.key, (source_,), lookup, make)

    def members(self, parents: Mapping[Key, Parent], lookup: Lookup) -> list[Member]:
        """Triggers and Subscriptions."""
        applied = {each.uid: each for route in self.state.applied.by_path.values() for each in route.subscribers}
        found: list[Member] = []
        for key in (*self.snapshot.keys(EVENTING, "Trigger"), *self.snapshot.keys(MESSAGING, "Subscription")):
            object_ = self.snapshot.objects[key]
            uid, parent = uid_of(object_), parents.get(parent_of(key, object_))
            served = Served(applied.get(uid), self.state.failing.get(uid))
            make = partial(self._member, key, object_, parent, served)
            found.append(self.memo.of("member", key, (object_, parent, served.subscriber, served.problem), lookup, make))
        return found

    def _member(self, key: Key, object_: Object, parent: Parent | None, served: Served, lookup: Lookup) -> Member:
        return member(key, object_, parent, self._addressing(lookup), served)

    def _addressing(self, lookup: Lookup) -> Addressing:
        return Addressing(lookup, self.settings.services, self.settings.allowed, f"{self.settings.base_url}/broker/")

    def writes(
        self, parents: Mapping[Key, Parent], by_parent: Mapping[Key, Sequence[Member]], members: Sequence[Member]
    ) -> Iterator[tuple[Key, Object]]:
        """The objects that are not as they should be."""
        for key, parent in parents.items():
            yield from self._changed(key, (parent, *by_parent[key]), partial(statuses.of_source, parent, by_parent[key], self.now))
        for each in members:
            figures = self.state.figures.get(uid_of(each.resource))
            yield from self._changed(each.key, (each, figures), partial(statuses.of_member, each, figures, self.now))
        for key in self.snapshot.keys(EXTENSIONS, "CustomResourceDefinition"):
            yield from self._changed(key, (), partial(statuses.of_definition, self.snapshot.objects[key], self.now))

    def _changed(self, key: Key, inputs: Sequence[object], make: Callable[[], Object]) -> Iterator[tuple[Key, Object]]:
        before = self.snapshot.objects[key]

        def compared(_lookup: Lookup) -> Object | None:
            new = make()
            return None if same(new, before) else new

        new = self.memo.of("object", key, (before, *inputs), nothing, compared)
        if new is not None:
            yield key, new


def _routes(served: Iterable[Source], members: Mapping[Key, Sequence[Member]], previous: Routes) -> Routes:
    """The routes; the previous ones if nothing changed."""
    by_path = {
        each.path: Route(
            uid=each.uid,
            kind=each.key.kind,
            namespace=each.key.namespace,
            name=each.key.name,
            path=each.path,
            log=each.log.need.log,
            subscribers=tuple(of_it.subscriber for of_it in members[each.key] if of_it.subscriber is not None),
            duplicates_ms=each.duplicates_ms,
        )
        for each in served
    }
    return previous if by_path == previous.by_path else replace(previous, version=previous.version + 1, by_path=by_path)


def _happenings(before: Object, after: Object) -> list[Happening]:
    """What the owner should hear: Ready became another, or is not for another reason."""
    kind = text(after, "kind")
    old, new = _ready(before), _ready(after)
    if new is None or (old is not None and (old.status, old.reason) == (new.status, new.reason)):
        return []
    if is_ready(after):
        return [Happening(after, "Normal", f"{kind}Ready", f"{kind} is ready")]
    if new.status == "Unknown":
        return []
    return [Happening(after, "Warning", new.reason, new.message)]


def _ready(object_: Object) -> Condition | None:
    for each in entries(object_, "status", "conditions"):
        if text(each, "type") == READY:
            return Condition(READY, text(each, "status"), text(each, "reason"), text(each, "message"))
    return None
