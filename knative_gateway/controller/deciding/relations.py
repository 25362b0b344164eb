"""The kinds that the controller serves, and the associations between their objects. Pure."""

from typing import Final

from knative_gateway.ports import Key
from knative_gateway.resources.kinds import EVENTING, EXTENSIONS, MESSAGING
from knative_gateway.resources.objects import Object, group_of, text

CHANNELS: Final = ("Channel", "InMemoryChannel")
SOURCES: Final = frozenset({(EVENTING, "Broker"), *((MESSAGING, kind) for kind in CHANNELS)})
MEMBERS: Final = frozenset({(EVENTING, "Trigger"), (MESSAGING, "Subscription")})
DEFINITION: Final = (EXTENSIONS, "CustomResourceDefinition")


def broker_of(key: Key, trigger: Object) -> Key:
    """Return the Broker that a Trigger is associated with. Spec: "Broker Lifecycle"."""
    return Key(EVENTING, "Broker", key.namespace, text(trigger, "spec", "broker"))


def channel_of(key: Key, subscription: Object) -> Key:
    """Return the Channel that a Subscription is associated with. Spec: "Channel Lifecycle"."""
    group = group_of(text(subscription, "spec", "channel", "apiVersion"))
    return Key(
        group,
        text(subscription, "spec", "channel", "kind"),
        key.namespace,
        text(subscription, "spec", "channel", "name"),
    )


def parent_of(key: Key, object_: Object) -> Key:
    """Return the Broker of a Trigger, or the Channel of a Subscription."""
    return broker_of(key, object_) if key.kind == "Trigger" else channel_of(key, object_)
