"""All objects at one moment, found by key, kind and what they refer to."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from knative_gateway.ports import Key
from knative_gateway.resources.kinds import EVENTING, MESSAGING
from knative_gateway.resources.objects import Object, group_of, text

CHANNELS: Final = ("Channel", "InMemoryChannel")


class Snapshot:
    """An index over objects; they are not changed by it."""

    def __init__(self, objects: Mapping[Key, Object]) -> None:
        self.objects: Final = objects
        self._by_kind: Final[dict[tuple[str, str], list[Key]]] = defaultdict(list)
        for key in sorted(objects, key=lambda each: (each.namespace, each.name)):
            self._by_kind[key.group, key.kind].append(key)

    def get(self, key: Key) -> Object | None:
        """One object."""
        return self.objects.get(key)

    def keys(self, group: str, kind: str) -> Sequence[Key]:
        """The objects of a kind, by namespace and name."""
        return self._by_kind.get((group, kind), ())

    def sources(self) -> list[Key]:
        """Brokers, Channels and InMemoryChannels."""
        return [*self.keys(EVENTING, "Broker"), *(key for kind in CHANNELS for key in self.keys(MESSAGING, kind))]


def broker_of(key: Key, trigger: Object) -> Key:
    """The Broker that a Trigger is associated with. Spec: "Broker Lifecycle"."""
    return Key(EVENTING, "Broker", key.namespace, text(trigger, "spec", "broker"))


def channel_of(key: Key, subscription: Object) -> Key:
    """The Channel that a Subscription is associated with. Spec: "Channel Lifecycle"."""
    group = group_of(text(subscription, "spec", "channel", "apiVersion"))
    return Key(group, text(subscription, "spec", "channel", "kind"), key.namespace, text(subscription, "spec", "channel", "name"))
