"""All objects and what the data plane has done -> status of each, routes, logs, and what is to be told. Pure and total.

Laws: the same input gives the same plan; a plan that is carried out, with nothing else changed, is followed by one without writes;
`observedGeneration` and `conditions` are written together. Spec: knative-eventing-test-spec, "Control Plane Assertions".
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from knative_gateway.addressing import Addressing
from knative_gateway.controller.plan import Figures, Happening, Plan, Settings, State
from knative_gateway.controller.snapshot import CHANNELS, Snapshot
from knative_gateway.controller.sources import Source, conditions, readiness, sources
from knative_gateway.controller.subscribers import Member, Parent, subscriber_spec, subscriber_status, subscription, trigger
from knative_gateway.ports import Failure, Key, Route, Routes
from knative_gateway.resources.conditions import READY, TRUE, Condition, is_ready, living, status_of
from knative_gateway.resources.kinds import EVENTING, EXTENSIONS, MESSAGING, established
from knative_gateway.resources.objects import Object, at, child, drop, entries, number, put, same, text, timestamp

HISTORY_IN_STATUS = 10
"""Failures; more are in the API."""


def reconcile(objects: Mapping[Key, Object], state: State, settings: Settings, *, previous: Routes, now_ms: int) -> Plan:
    """What is to be done. `previous`: the routes of the last plan; `now_ms`: since 1970 UTC, for transition times."""
    snapshot = Snapshot(objects)
    now = timestamp(now_ms)
    found = sources(snapshot, settings, state)
    addressing = Addressing(lambda key: found[key].published() if key in found else snapshot.get(key), settings.services, settings.allowed)
    parents: dict[Key, Parent] = {}
    for key, source in found.items():
        delivery = source.delivery(addressing)
        parents[key] = Parent(source, readiness(source, delivery), delivery)
    members = [trigger(key, objects[key], parents, addressing, state) for key in snapshot.keys(EVENTING, "Trigger")]
    members += [subscription(key, objects[key], parents, addressing, state) for key in snapshot.keys(MESSAGING, "Subscription")]
    by_parent: dict[Key, list[Member]] = {key: [] for key in parents}
    for member in members:
        if member.parent is not None:
            by_parent[member.parent.source.key].append(member)
    wanted = [_source_object(parent, by_parent[key], now) for key, parent in parents.items()]
    wanted += [_member_object(member, state.figures.get(text(member.resource, "metadata", "uid")), now) for member in members]
    wanted += [_definition(objects[key], now) for key in snapshot.keys(EXTENSIONS, "CustomResourceDefinition")]
    keys = [*parents, *(member.key for member in members), *snapshot.keys(EXTENSIONS, "CustomResourceDefinition")]
    writes = {key: new for key, new in zip(keys, wanted, strict=True) if not same(new, objects[key])}
    served = [source for source in found.values() if source.served]
    return Plan(
        writes=writes,
        routes=_routes(served, by_parent, previous),
        logs=[source.log.need for source in served],
        happenings=[happening for key, new in writes.items() for happening in _happenings(objects[key], new)],
    )


def _routes(served: Iterable[Source], members: Mapping[Key, Sequence[Member]], previous: Routes) -> Routes:
    """The routes; the previous ones if nothing changed."""
    by_path = {
        source.path: Route(
            uid=source.uid,
            kind=source.key.kind,
            namespace=source.key.namespace,
            name=source.key.name,
            path=source.path,
            log=source.log.need.log,
            subscribers=tuple(member.subscriber for member in members[source.key] if member.subscriber is not None),
            duplicates_ms=source.duplicates_ms,
        )
        for source in served
    }
    return previous if by_path == previous.by_path else replace(previous, version=previous.version + 1, by_path=by_path)


def _with_status(object_: Object, status: Mapping[str, object], conditions_: Sequence[Condition], now: str) -> dict[str, object]:
    """Spec: observedGeneration and conditions MUST be updated in the same transaction: they are one value of one write."""
    generation = number(object_, "metadata", "generation")
    annotations = child(object_, "status", "annotations")
    kept = {"annotations": annotations} if annotations else {}
    return {**object_, "status": {"observedGeneration": generation, "conditions": living(conditions_, object_, now), **kept, **status}}


def _source_object(parent: Parent, members: Sequence[Member], now: str) -> Object:
    source, delivery = parent.source, parent.delivery
    status: dict[str, object] = {**({"address": {"url": source.url}} if source.url else {}), **delivery.status()}
    object_ = source.resource
    if source.key.kind in CHANNELS:
        object_ = _with_subscribers(object_, [subscriber_spec(member) for member in members if member.subscriber is not None])
        if members:
            status["subscribers"] = [subscriber_status(member) for member in members]
    return _with_status(object_, status, conditions(source, delivery), now)


def _with_subscribers(channel: Object, subscribers: list[dict[str, object]]) -> Object:
    """The Channel with its server-filled list: a change of the spec, so its generation counts on."""
    if same(entries(channel, "spec", "subscribers"), subscribers):
        return channel
    changed = put(channel, ("spec", "subscribers"), subscribers) if subscribers else drop(channel, ("spec", "subscribers"))
    return put(changed, ("metadata", "generation"), number(channel, "metadata", "generation") + 1)


def _member_object(member: Member, figures: Figures | None, now: str) -> Object:
    before = child(member.resource, "status")
    counted = {name: before[name] for name in ("deliveries", "history") if name in before}
    if figures is not None:
        counted = {"deliveries": dict(figures.counters)} if figures.counters else {}
        counted |= {"history": [_told(failure) for failure in figures.history[:HISTORY_IN_STATUS]]} if figures.history else {}
    return _with_status(member.resource, {**member.status, **counted}, member.conditions, now)


def _told(failure: Failure) -> dict[str, object]:
    """A failure as status shows it."""
    made: dict[str, object] = {"time": timestamp(failure.at_ms), "eventId": failure.event_id, "eventSource": failure.event_source}
    made |= {"partition": failure.partition, "offset": failure.offset, "attempt": failure.attempt, "reason": failure.reason}
    made |= {} if failure.code is None else {"code": failure.code}
    return made | {name: value for name, value in (("body", failure.body), ("end", failure.end)) if value}


def _definition(definition: Object, now: str) -> Object:
    """A stored definition is served from then on."""
    if status_of(definition, "Established") == TRUE:
        return definition
    stored = [text(version, "name") for version in entries(definition, "spec", "versions") if at(version, "storage") is True]
    return {**definition, "status": established(child(definition, "spec", "names"), stored, now)}


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
