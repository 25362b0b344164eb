from knative_gateway.controller.snapshot import Snapshot, broker_of, channel_of
from knative_gateway.ports import Key
from knative_gateway.resources.objects import Object

KEYS = [
    Key("eventing.knative.dev", "Broker", "n", "b"),
    Key("eventing.knative.dev", "Broker", "m", "z"),
    Key("messaging.knative.dev", "Channel", "n", "c"),
    Key("messaging.knative.dev", "InMemoryChannel", "n", "d"),
    Key("", "Service", "n", "s"),
]


def test_objects_are_found_by_key_and_by_kind_in_order() -> None:
    objects: dict[Key, Object] = {key: {"key": key.name} for key in KEYS}
    snapshot = Snapshot(objects)
    assert snapshot.get(KEYS[4]) == {"key": "s"}
    assert snapshot.get(Key("", "Service", "n", "none")) is None
    assert snapshot.keys("eventing.knative.dev", "Broker") == [KEYS[1], KEYS[0]]
    assert snapshot.keys("eventing.knative.dev", "Trigger") == ()
    assert snapshot.sources() == [KEYS[1], KEYS[0], KEYS[2], KEYS[3]]


def test_what_an_object_belongs_to_is_in_its_own_namespace() -> None:
    trigger = Key("eventing.knative.dev", "Trigger", "n", "t")
    assert broker_of(trigger, {"spec": {"broker": "b"}}) == KEYS[0]
    reference = {"apiVersion": "messaging.knative.dev/v1", "kind": "Channel", "name": "c"}
    assert channel_of(Key("messaging.knative.dev", "Subscription", "n", "s"), {"spec": {"channel": reference}}) == KEYS[2]
