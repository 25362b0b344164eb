from knative_gateway.controller.deciding.relations import broker_of, channel_of, parent_of
from knative_gateway.ports import Key


def test_the_owner_of_an_object_is_in_its_namespace() -> None:
    trigger, subscription = (
        Key("eventing.knative.dev", "Trigger", "n", "t"),
        Key("messaging.knative.dev", "Subscription", "n", "s"),
    )
    reference = {"apiVersion": "messaging.knative.dev/v1", "kind": "Channel", "name": "c"}
    broker, channel = (
        Key("eventing.knative.dev", "Broker", "n", "b"),
        Key("messaging.knative.dev", "Channel", "n", "c"),
    )
    assert (
        broker_of(trigger, {"spec": {"broker": "b"}})
        == broker
        == parent_of(trigger, {"spec": {"broker": "b"}})
    )
    assert (
        channel_of(subscription, {"spec": {"channel": reference}})
        == channel
        == parent_of(subscription, {"spec": {"channel": reference}})
    )
