"""The default values of objects. They are Knative's own.

Values that were set once are kept: if a later manifest leaves out a Broker's class or a Channel's template,
the stored value is used, even if the default has changed since.

Spec: knative-eventing-test-spec, "Detailed Resources".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from knative_gateway.resources.kinds import EVENTING, MESSAGING, Kind
from knative_gateway.resources.objects import Object, annotation, at, child, drop, namespace_of, put, text

BROKER_CLASS: Final = "eventing.knative.dev/broker.class"
BROKER_LABEL: Final = "eventing.knative.dev/broker"
SUBSCRIBABLE: Final = "messaging.knative.dev/subscribable"
CLASS_PATH: Final = ("metadata", "annotations", BROKER_CLASS)
_DESTINATIONS: Final = (("spec", "subscriber"), ("spec", "reply"), ("spec", "delivery", "deadLetterSink"))
SUBSCRIBERS: Final = ("spec", "subscribers")


def _delivery() -> Object:
    return {"retry": 10, "backoffPolicy": "exponential", "backoffDelay": "PT0.2S"}


def _template() -> Object:
    return {"apiVersion": f"{MESSAGING}/v1", "kind": "InMemoryChannel"}


@dataclass(frozen=True, slots=True)
class Defaults:
    """The defaults that an administrator can change."""

    broker_class: str = "MTChannelBasedBroker"
    broker_delivery: Object = field(default_factory=_delivery)
    channel_template: Object = field(default_factory=_template)


def filled(kind: Kind, object_: Object, old: Object | None, defaults: Defaults) -> dict[str, object]:
    """Return the object with its defaults. `old` is the stored object that it replaces."""
    result = dict(object_)
    if kind.group in {EVENTING, MESSAGING}:
        result.setdefault("spec", {})
        for path in _DESTINATIONS:
            result = _with_namespace(result, (*path, "ref"))
    match kind.group, kind.kind:
        case "eventing.knative.dev", "Broker":
            result = _broker(result, old, defaults)
        case "eventing.knative.dev", "Trigger":
            result = _trigger(result)
        case "messaging.knative.dev", "Channel":
            result = _subscribable(_channel(result, old, defaults), old)
        case "messaging.knative.dev", "InMemoryChannel":
            result = _subscribable(result, old)
        case "", "Namespace":
            result = put(result, ("status", "phase"), "Active")
        case "", "Service" if not text(result, "spec", "type"):
            result = put(result, ("spec", "type"), "ClusterIP")
        case _:
            pass
    return result


def _channel(channel: dict[str, object], old: Object | None, defaults: Defaults) -> dict[str, object]:
    if at(channel, "spec", "channelTemplate"):
        return channel
    return put(
        channel,
        ("spec", "channelTemplate"),
        dict(child(at(old, "spec", "channelTemplate") or defaults.channel_template)),
    )


def _with_namespace(object_: dict[str, object], path: tuple[str, ...]) -> dict[str, object]:
    """Set the namespace of a reference without one to the namespace of the object."""
    found = at(object_, *path)
    if not isinstance(found, Mapping) or text(found, "namespace"):
        return object_
    return put(object_, (*path, "namespace"), namespace_of(object_))


def _broker(broker: dict[str, object], old: Object | None, defaults: Defaults) -> dict[str, object]:
    if annotation(broker, BROKER_CLASS) is None:
        kept = annotation(old, BROKER_CLASS) if old else None
        broker = put(broker, CLASS_PATH, kept or defaults.broker_class)
    if at(broker, "spec", "config") is None:
        # The ConfigMap may contain the default delivery. It is read when the Broker is reconciled.
        return (
            broker
            if child(broker, "spec", "delivery")
            else put(broker, ("spec", "delivery"), dict(defaults.broker_delivery))
        )
    return _with_namespace(broker, ("spec", "config"))


def _trigger(trigger: dict[str, object]) -> dict[str, object]:
    if at(trigger, "spec", "filter") is None and at(trigger, "spec", "filters") is None:
        trigger = put(trigger, ("spec", "filter"), {})
    broker = text(trigger, "spec", "broker")
    return (
        put(trigger, ("metadata", "labels", BROKER_LABEL), broker)
        # A label value has at most 63 characters (Kubernetes), the name of a Broker may have more.
        if broker and len(broker) <= 63
        else trigger
    )


def _subscribable(channel: dict[str, object], old: Object | None) -> dict[str, object]:
    """Keep the stored `spec.subscribers`: only the server writes this field."""
    channel = put(channel, ("metadata", "annotations", SUBSCRIBABLE), "v1")
    kept = at(old, *SUBSCRIBERS)
    return drop(channel, SUBSCRIBERS) if kept is None else put(channel, SUBSCRIBERS, kept)
