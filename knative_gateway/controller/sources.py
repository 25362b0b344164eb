"""Brokers and Channels: where their events come in, into which log, and what is the matter with them.

Spec: knative-eventing-test-spec, "Broker Lifecycle", "Channel Lifecycle", "Event Routing". A Channel is served as it is: its template
says how its log is made, and no second object is made from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from knative_gateway.addressing import Addressing
from knative_gateway.controller.delivery_specs import Resolved, resolved
from knative_gateway.controller.log_settings import LogSettings, of_broker, of_channel
from knative_gateway.controller.plan import Settings, State
from knative_gateway.controller.snapshot import CHANNELS, Snapshot
from knative_gateway.ports import Key
from knative_gateway.resources.conditions import TRUE, Condition, is_false, is_true, is_unknown, status_of, summary
from knative_gateway.resources.extensions import duplicate_window_ms
from knative_gateway.resources.kinds import MESSAGING
from knative_gateway.resources.objects import Object, child, group_of, put, text, uid_of

OF_DATA_PLANE: Final[Mapping[str, tuple[str, ...]]] = {
    "Broker": ("IngressReady", "TriggerChannelReady", "FilterReady"),
    "Channel": ("BackingChannelReady",),
    "InMemoryChannel": ("DispatcherReady", "ServiceReady", "EndpointsReady", "ChannelServiceReady"),
}
"""The conditions that tell of log and ingress."""
PREFIXES: Final = {"Broker": "broker", "Channel": "channel", "InMemoryChannel": "channel"}


@dataclass(frozen=True, slots=True)
class Source:
    """One Broker or Channel. `served`: it has a route; `url`: its published address, empty while it has none."""

    key: Key
    resource: Object
    path: str
    log: LogSettings
    served: bool
    url: str
    data_plane: Condition
    taken: Condition | None

    @property
    def uid(self) -> str:
        """Its identity."""
        return uid_of(self.resource)

    @property
    def duplicates_ms(self) -> int | None:
        """The window of its duplicate detection."""
        return duplicate_window_ms(self.resource)[0]

    def published(self) -> Object:
        """The object with the address that it has by now: what others refer to."""
        return put(self.resource, ("status", "address"), {"url": self.url}) if self.url else put(self.resource, ("status", "address"), {})

    def delivery(self, addressing: Addressing) -> Resolved:
        """The delivery that its Triggers or Subscriptions inherit."""
        spec = child(self.resource, "spec", "delivery") or child(self.log.delivery)
        return resolved(spec, self.key.namespace, addressing)


def sources(snapshot: Snapshot, settings: Settings, state: State) -> dict[Key, Source]:
    """All of them."""
    return {key: _source(key, snapshot, settings, state) for key in snapshot.sources()}


def _source(key: Key, snapshot: Snapshot, settings: Settings, state: State) -> Source:
    object_ = snapshot.objects[key]
    prefix = PREFIXES[key.kind]
    path, log_name = f"/{prefix}/{key.namespace}/{key.name}", f"{prefix}.{key.namespace}.{key.name}"
    log = _log_settings(key, log_name, snapshot, settings)
    before = text(object_, "status", "address", "url")
    taken = _name_taken(key, snapshot)
    served = taken is None and (log.problem is None or bool(before))
    was_served = bool(before) and status_of(object_, OF_DATA_PLANE[key.kind][0]) == TRUE
    data_plane = _data_plane(object_, path, log, state, was_served)
    able = data_plane.status == "True" or bool(before)
    url = f"{settings.base_url}{path}" if served and able else ""
    return Source(key, object_, path, log, served, url, data_plane, taken)


def _log_settings(key: Key, log: str, snapshot: Snapshot, settings: Settings) -> LogSettings:
    object_ = snapshot.objects[key]
    if key.kind in CHANNELS:
        return of_channel(log, object_, settings)
    config = child(object_, "spec", "config")
    if not config:
        return of_broker(log, object_, None, None, settings)
    namespace = text(config, "namespace") or key.namespace
    config_key = Key(group_of(text(config, "apiVersion")), text(config, "kind"), namespace, text(config, "name"))
    return of_broker(log, object_, snapshot.get(config_key), config_key, settings)


def _name_taken(key: Key, snapshot: Snapshot) -> Condition | None:
    """A Channel and an InMemoryChannel of one name would be one address: the elder has it."""
    if key.kind not in CHANNELS:
        return None
    (other_kind,) = (kind for kind in CHANNELS if kind != key.kind)
    other = snapshot.get(Key(MESSAGING, other_kind, key.namespace, key.name))
    if other is None or _age(snapshot.objects[key]) < _age(other):
        return None
    return is_false("Addressable", "NameTaken", f"{other_kind} {key.namespace}/{key.name} has this address")


def _age(object_: Object) -> tuple[str, str]:
    return text(object_, "metadata", "creationTimestamp"), uid_of(object_)


def _data_plane(object_: Object, path: str, log: LogSettings, state: State, was_served: bool) -> Condition:
    """Whether log and ingress are there; under a name that each kind gives its own. `was_served`: its status says so, and what is not known
    yet after a start, or on another replica, does not change that."""
    if log.problem is not None:
        return is_false("", *log.problem)
    name = log.need.log
    problem = state.logs.get(name)
    if problem is not None:
        return is_false("", "LogUnavailable", f"log {name}: {problem}")
    if was_served:
        return is_true("")
    if name not in state.logs:
        return is_unknown("", "LogPending", f"log {name} is being made")
    route = state.applied.by_path.get(path)
    if route is None or route.uid != uid_of(object_):
        return is_unknown("", "RoutePending", "its address is not served yet")
    return is_true("")


def conditions(source: Source, delivery: Resolved) -> list[Condition]:
    """All but Ready."""
    data_plane = source.data_plane
    same = [Condition(name, data_plane.status, data_plane.reason, data_plane.message) for name in OF_DATA_PLANE[source.key.kind]]
    if source.taken is not None:
        addressable = source.taken
    elif source.url:
        addressable = is_true("Addressable")
    else:
        addressable = Condition("Addressable", data_plane.status, data_plane.reason, data_plane.message)
    return [
        *same,
        addressable,
        delivery.condition,
        is_true("EventPoliciesReady", "AuthorizationByGateway", "senders are judged by the gateway"),
    ]


def readiness(source: Source, delivery: Resolved) -> Condition:
    """Ready of it."""
    return summary(conditions(source, delivery))
