"""Brokers and Channels: their addresses, logs and conditions.

A Channel does not need a second object: its template contains the settings of its log.

Spec: knative-eventing-test-spec, "Broker Lifecycle", "Channel Lifecycle", "Event Routing".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from knative_gateway.addressing import Addressing, Lookup
from knative_gateway.controller.deciding.delivery_specs import Resolved, resolved
from knative_gateway.controller.deciding.log_settings import LogSettings, of_broker, of_channel
from knative_gateway.controller.deciding.plan import Settings
from knative_gateway.controller.deciding.relations import CHANNELS
from knative_gateway.ports import Key
from knative_gateway.resources.conditions import (
    TRUE,
    Condition,
    is_false,
    is_true,
    is_unknown,
    status_of,
    summary,
)
from knative_gateway.resources.extensions import duplicate_window_ms
from knative_gateway.resources.kinds import EVENTING, MESSAGING
from knative_gateway.resources.objects import Object, child, group_of, put, text, uid_of

OF_DATA_PLANE: Final[Mapping[str, tuple[str, ...]]] = {
    "Broker": ("IngressReady", "TriggerChannelReady", "FilterReady"),
    "Channel": ("BackingChannelReady",),
    "InMemoryChannel": ("DispatcherReady", "ServiceReady", "EndpointsReady", "ChannelServiceReady"),
}
"""The conditions for log and ingress, by kind. Knative has other names for each kind."""
PREFIXES: Final = {"Broker": "broker", "Channel": "channel", "InMemoryChannel": "channel"}


@dataclass(frozen=True, slots=True)
class Source:
    """One Broker or Channel.

    `served`: it needs a log and a route. `routed`: it has the route; this is the case as soon as the state of
    its log is known, and the log of a predecessor was deleted. `url`: its published address; empty if it does
    not have one yet.
    """

    key: Key
    resource: Object
    path: str
    log: LogSettings
    served: bool
    routed: bool
    url: str
    data_plane: Condition
    taken: Condition | None
    published: Object
    """The object with its current address, as other objects see it."""

    @property
    def uid(self) -> str:
        """The uid of the object."""
        return uid_of(self.resource)

    @property
    def duplicates_ms(self) -> int | None:
        """The window of duplicate detection in milliseconds; None: duplicates are not detected."""
        return duplicate_window_ms(self.resource)[0]

    def delivery(self, addressing: Addressing) -> Resolved:
        """Return the delivery options that its Triggers or Subscriptions inherit."""
        # Whole or not at all: the specification does not merge the options of a Broker with those of its
        # ConfigMap.
        spec = child(self.resource, "spec", "delivery") or child(self.log.delivery)
        return resolved(spec, self.key.namespace, addressing)


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The data plane's report. `log_problem`: None if the log exists, `UNKNOWN_LOG` if its state is not known
    yet. `routed`: the route is served. `log_of_predecessor`: the log is still that of a predecessor.
    """

    log_problem: str | None
    routed: bool
    log_of_predecessor: bool = False


UNKNOWN_LOG: Final = "unknown"


def names_of(key: Key) -> tuple[str, str]:
    """Return the path and the log of a Broker or Channel."""
    prefix = PREFIXES[key.kind]
    return f"/{prefix}/{key.namespace}/{key.name}", f"{prefix}.{key.namespace}.{key.name}"


def log_of(path: str) -> str:
    """Return the log for a path."""
    # Two replacements: names may contain dots, and no slash.
    return path.removeprefix("/").replace("/", ".", 2)


def path_of(log: str) -> str:
    """Return the path for a log."""
    return "/" + log.replace(".", "/", 2)


def keys_of(path: str) -> Sequence[Key]:
    """Return the keys of objects that may have this path: the inverse of `names_of`."""
    parts = path.split("/")
    if len(parts) != 4 or parts[0]:
        return ()
    kinds = [kind for kind, prefix in PREFIXES.items() if prefix == parts[1]]
    return [Key(MESSAGING if kind in CHANNELS else EVENTING, kind, parts[2], parts[3]) for kind in kinds]


def source(key: Key, object_: Object, settings: Settings, kept: Upkeep, lookup: Lookup) -> Source:
    """Compute the result for a Broker or Channel."""
    path, log_name = names_of(key)
    log = _log_settings(key, log_name, object_, lookup, settings)
    before = text(object_, "status", "address", "url")
    taken = _name_taken(key, object_, lookup)
    # An address that was published stays: a setting that became invalid later must not cut senders off.
    served = taken is None and (log.problem is None or bool(before))
    # From the stored status, because the reports of the data plane are lost at a restart.
    was_served = bool(before) and status_of(object_, OF_DATA_PLANE[key.kind][0]) == TRUE
    data_plane = _data_plane(log, kept, was_served)
    able = data_plane.status == TRUE or bool(before)
    url = f"{settings.base_url}{path}" if served and able else ""
    published = put(object_, ("status", "address"), {"url": url} if url else {})
    # On the log of a predecessor, the successor would deliver events of the predecessor, and its own events
    # would be deleted with the log.
    routed = served and kept.log_problem != UNKNOWN_LOG and not kept.log_of_predecessor
    return Source(key, object_, path, log, served, routed, url, data_plane, taken, published)


def _log_settings(key: Key, log: str, object_: Object, lookup: Lookup, settings: Settings) -> LogSettings:
    if key.kind in CHANNELS:
        return of_channel(log, object_, settings)
    config = child(object_, "spec", "config")
    if not config:
        return of_broker(log, object_, None, None, settings)
    namespace = text(config, "namespace") or key.namespace
    config_key = Key(
        group_of(text(config, "apiVersion")),
        text(config, "kind"),
        namespace,
        text(config, "name"),
    )
    return of_broker(log, object_, lookup(config_key), config_key, settings)


def _name_taken(key: Key, object_: Object, lookup: Lookup) -> Condition | None:
    """A Channel and an InMemoryChannel with the same name would share an address.

    The older object gets it.
    """
    if key.kind not in CHANNELS:
        return None
    (other_kind,) = (kind for kind in CHANNELS if kind != key.kind)
    other = lookup(Key(MESSAGING, other_kind, key.namespace, key.name))
    if other is None or _age(object_) < _age(other):
        return None
    return is_false("Addressable", "NameTaken", f"{other_kind} {key.namespace}/{key.name} has this address")


def _age(object_: Object) -> tuple[str, bool, str]:
    """Return the sort key for age.

    Timestamps have whole seconds. Of two objects of one second, the object that has the address counts as
    older.
    """
    return (
        text(object_, "metadata", "creationTimestamp"),
        not text(object_, "status", "address", "url"),
        uid_of(object_),
    )


def _data_plane(log: LogSettings, kept: Upkeep, was_served: bool) -> Condition:
    """Return the condition for the log of a Broker or Channel and for the ingress that accepts its events.

    `was_served`: the stored status already is True. It stays True after a start, and on another replica,
    until a report says otherwise.
    """
    if log.problem is not None:
        return is_false("", *log.problem)
    name, is_known = log.need.log, kept.log_problem != UNKNOWN_LOG
    if is_known and kept.log_problem is not None:
        return is_false("", "LogUnavailable", f"log {name}: {kept.log_problem}")
    if was_served:
        return is_true("")
    if not is_known:
        return is_unknown("", "LogPending", f"log {name} is being created")
    return (
        is_true("")
        if kept.routed
        else is_unknown("", "RoutePending", "the data plane does not serve its address yet")
    )


def conditions(source_: Source, delivery: Resolved) -> list[Condition]:
    """Return all conditions except Ready."""
    data_plane = source_.data_plane
    same = [
        Condition(name, data_plane.status, data_plane.reason, data_plane.message)
        for name in OF_DATA_PLANE[source_.key.kind]
    ]
    if source_.taken is not None:
        addressable = source_.taken
    elif source_.url:
        addressable = is_true("Addressable")
    else:
        addressable = Condition("Addressable", data_plane.status, data_plane.reason, data_plane.message)
    return [
        *same,
        addressable,
        delivery.condition,
        is_true(
            "EventPoliciesReady", "AuthorizationByGateway", "the gateway decides which senders are allowed"
        ),
    ]


def readiness(source_: Source, delivery: Resolved) -> Condition:
    """Return the condition Ready of an object."""
    return summary(conditions(source_, delivery))
