from knative_gateway.resources.defaults import BROKER_CLASS, Defaults, filled
from knative_gateway.resources.objects import Object, annotation, at
from tests.knative_gateway.resources.made import TRIGGER, kind, made

DEFAULTS = Defaults()


def fill(name: str, object_: Object, old: Object | None = None) -> dict[str, object]:
    return filled(kind(name), object_, old, DEFAULTS)


def test_a_broker_gets_its_class_and_how_its_events_are_retried() -> None:
    broker = fill("Broker", made("Broker"))
    assert annotation(broker, BROKER_CLASS) == "MTChannelBasedBroker"
    assert at(broker, "spec", "delivery") == {
        "retry": 10,
        "backoffPolicy": "exponential",
        "backoffDelay": "PT0.2S",
    }


def test_values_of_the_author_are_kept() -> None:
    broker = fill("Broker", made("Broker", {"delivery": {"retry": 1}}, annotations={BROKER_CLASS: "Mine"}))
    assert annotation(broker, BROKER_CLASS) == "Mine"
    assert at(broker, "spec", "delivery") == {"retry": 1}


def test_a_broker_with_a_config_may_find_its_delivery_there() -> None:
    broker = fill(
        "Broker",
        made("Broker", {"config": {"apiVersion": "v1", "kind": "ConfigMap", "name": "c"}}, namespace="n"),
    )
    assert at(broker, "spec", "delivery") is None
    assert at(broker, "spec", "config", "namespace") == "n"


def test_earlier_decisions_are_carried_over() -> None:
    old = made("Broker", {}, annotations={BROKER_CLASS: "Mine"})
    assert annotation(fill("Broker", made("Broker", {}), old), BROKER_CLASS) == "Mine"
    template = {"apiVersion": "messaging.knative.dev/v1", "kind": "Mine"}
    channel = made("Channel", {"channelTemplate": template})
    assert at(fill("Channel", made("Channel", {}), channel), "spec", "channelTemplate") == template


def test_a_channel_is_made_from_an_in_memory_one_and_is_subscribable() -> None:
    channel = fill("Channel", made("Channel"))
    assert at(channel, "spec", "channelTemplate", "kind") == "InMemoryChannel"
    assert annotation(channel, "messaging.knative.dev/subscribable") == "v1"
    assert at(fill("InMemoryChannel", made("InMemoryChannel")), "spec", "channelTemplate") is None


def test_subscribers_are_the_server_s_alone() -> None:
    """knative-eventing-test-spec, "Channel": this array MUST be managed automatically by the controller."""
    sent = made("Channel", {"subscribers": [{"uid": "forged"}]})
    assert at(fill("Channel", sent), "spec", "subscribers") is None
    old = made("Channel", {"subscribers": [{"uid": "real"}]})
    assert at(fill("Channel", sent, old), "spec", "subscribers") == [{"uid": "real"}]
    assert at(fill("Channel", made("Channel", {}), old), "spec", "subscribers") == [{"uid": "real"}]


def test_a_reference_without_a_namespace_means_the_object_s_own() -> None:
    """knative-eventing-test-spec, "KReference"."""
    reference = {"apiVersion": "v1", "kind": "Service", "name": "s"}
    elsewhere = {**reference, "namespace": "elsewhere"}
    spec = {
        "broker": "b",
        "subscriber": {"ref": reference},
        "delivery": {"deadLetterSink": {"ref": elsewhere}},
    }
    trigger = fill("Trigger", made("Trigger", spec, namespace="n"))
    assert at(trigger, "spec", "subscriber", "ref", "namespace") == "n"
    assert at(trigger, "spec", "delivery", "deadLetterSink", "ref", "namespace") == "elsewhere"


def test_a_trigger_without_filters_takes_everything_and_is_found_by_its_broker() -> None:
    trigger = fill("Trigger", TRIGGER)
    assert at(trigger, "spec", "filter") == {}
    assert at(trigger, "metadata", "labels", "eventing.knative.dev/broker") == "b"
    spec = {"broker": "b" * 64, "filters": []}
    assert at(fill("Trigger", made("Trigger", spec)), "spec", "filter") is None
    assert at(fill("Trigger", made("Trigger", spec)), "metadata", "labels") is None


def test_filling_twice_is_the_same_as_once() -> None:
    for name in (
        "Broker",
        "Trigger",
        "Channel",
        "InMemoryChannel",
        "Subscription",
        "Namespace",
        "Service",
        "ConfigMap",
    ):
        once = fill(name, made(name))
        assert fill(name, once, once) == once
