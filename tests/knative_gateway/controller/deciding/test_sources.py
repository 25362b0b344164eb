"""Brokers and Channels. Sections are those of knative-eventing-test-spec."""

from dataclasses import replace
from typing import Any

import pytest

from knative_gateway.controller.deciding.plan import LogNeed, Settings
from knative_gateway.resources.objects import at, put, text, uid_of
from tests.knative_gateway.controller.world import (
    BASE,
    World,
    broker,
    channel,
    made,
    ref,
    subscription,
    trigger,
)

SOURCES = {"Broker": "broker", "Channel": "channel", "InMemoryChannel": "channel"}
CONDITIONS = {
    "Broker": {
        "Ready",
        "IngressReady",
        "TriggerChannelReady",
        "FilterReady",
        "Addressable",
        "DeadLetterSinkResolved",
        "EventPoliciesReady",
    },
    "Channel": {
        "Ready",
        "BackingChannelReady",
        "Addressable",
        "DeadLetterSinkResolved",
        "EventPoliciesReady",
    },
    "InMemoryChannel": {
        "Ready",
        "DispatcherReady",
        "ServiceReady",
        "EndpointsReady",
        "ChannelServiceReady",
        "Addressable",
        "DeadLetterSinkResolved",
        "EventPoliciesReady",
    },
}


def source(kind: str, name: str = "x", spec: dict[str, object] | None = None) -> dict[str, object]:
    return broker(name, spec) if kind == "Broker" else channel(name, spec, kind=kind)


@pytest.mark.parametrize("kind", SOURCES)
def test_an_address_is_published_once_events_are_taken_there(kind: str) -> None:
    """Sections "Broker Lifecycle", "Channel Lifecycle", "Content Based Routing", "Topology Based Routing":
    it MUST publish a URL at status.address.url when it is able to receive events."""
    world = World(works=False)
    key = world.send(source(kind))
    world.step()
    assert at(world.status(key), "address") is None
    assert world.ready(key) == ("Unknown", "LogPending")
    world.works = True
    world.settle()
    path = f"/{SOURCES[kind]}/default/x"
    assert at(world.status(key), "address", "url") == BASE + path
    assert world.ready(key) == ("True", "")
    assert world.routes.by_path[path].log == f"{SOURCES[kind]}.default.x"
    assert list(world.plans[-1].logs.values()) == [
        LogNeed(f"{SOURCES[kind]}.default.x", 4, owner=uid_of(world.objects[key]))
    ]


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_conforms_to_addressable(kind: str) -> None:
    """Section "Destination Resolution": both Broker and Channel MUST conform to the Addressable partial."""
    world = World()
    world.send(source(kind))
    world.send(broker("other"))
    group = "eventing" if kind == "Broker" else "messaging"
    key = world.send(trigger(of="other", to=ref("x", kind, f"{group}.knative.dev/v1")))
    world.settle()
    assert world.status(key)["subscriberUri"] == f"{BASE}/{SOURCES[kind]}/default/x"


@pytest.mark.parametrize("kind", SOURCES)
def test_the_conditions_are_those_that_knative_s_users_know(kind: str) -> None:
    world = World()
    key = world.send(source(kind))
    assert world.settle().conditions(key) == dict.fromkeys(CONDITIONS[kind], "True")


@pytest.mark.parametrize("kind", SOURCES)
def test_a_log_that_cannot_be_created_is_reported_and_its_address_stays(kind: str) -> None:
    world = World()
    key = world.send(source(kind))
    world.settle()
    log = f"{SOURCES[kind]}.default.x"
    world.state = replace(world.state, logs={log: "the disk is full"})
    world.settle()
    assert world.ready(key) == ("False", "LogUnavailable")
    assert at(world.status(key), "address", "url") == f"{BASE}/{SOURCES[kind]}/default/x"
    assert list(world.routes.by_path) == [f"/{SOURCES[kind]}/default/x"]


@pytest.mark.parametrize("kind", SOURCES)
def test_a_dead_letter_sink_is_resolved_into_status(kind: str) -> None:
    """Sections "Broker", "Channel", Status: deadLetterSinkUri is the resolved URL of the dead
    letter address.
    """
    world = World()
    key = world.send(source(kind, spec={"delivery": {"deadLetterSink": ref("none")}}))
    world.settle()
    assert world.status(key)["deadLetterSinkUri"] == ""
    assert world.ready(key) == ("False", "NotFound")
    world.patch(key, {"spec": {"delivery": {"deadLetterSink": {"ref": None, "uri": "http://dead/"}}}})
    world.settle()
    assert world.status(key)["deadLetterSinkUri"] == "http://dead/"
    assert world.ready(key)[0] == "True"
    world.patch(key, {"spec": {"delivery": {"deadLetterSink": None}}})
    assert "deadLetterSinkUri" not in world.settle().status(key)


@pytest.mark.parametrize("kind", SOURCES)
def test_observations_and_conditions_are_written_together(kind: str) -> None:
    """Sections "Broker", "Channel", Status: conditions MUST be updated in the same transaction as
    observedGeneration.
    """
    world = World()
    key = world.send(source(kind))
    world.settle()
    world.patch(key, {"spec": {"delivery": {"deadLetterSink": ref("none")}}})
    (write,) = [plan.writes[key] for plan in [world.step()] if key in plan.writes]
    assert at(write, "status", "observedGeneration") == at(write, "metadata", "generation") == 2
    assert world.ready(key)[0] == "False"


def test_a_broker_is_configured_by_its_config_map() -> None:
    """Section "Broker", Spec: config is a reference to an object which describes the configuration
    options.
    """
    world = World()
    config = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c"}
    key = world.send(broker(spec={"config": config}))
    world.settle()
    assert world.ready(key) == ("False", "ConfigNotFound")
    assert world.routes.by_path == {}
    map_key = world.send(
        {
            **made("v1", "ConfigMap", "c"),
            "data": {"partitions": "7", "retention": "P1D", "delivery": "retry: 3"},
        }
    )
    member = world.send(trigger())
    world.settle()
    assert world.ready(key) == ("True", "")
    assert list(world.plans[-1].logs.values()) == [
        LogNeed("broker.default.b", 7, 86_400_000, uid_of(world.objects[key]))
    ]
    subscriber = world.subscriber(member)
    assert subscriber is not None
    assert subscriber.delivery.retry == 3
    world.delete(map_key)
    world.settle()
    assert world.ready(key) == ("False", "ConfigNotFound")
    assert list(world.routes.by_path) == ["/broker/default/b"], (
        "a Broker that is in use is not taken from its senders"
    )


def test_a_recreated_source_is_another_one() -> None:
    world = World()
    key = world.send(broker())
    world.settle()
    first = world.routes
    world.delete(key)
    world.send(broker())
    world.step()
    assert world.ready(key)[0] == "Unknown", "the data plane serves the old one still"
    world.settle()
    assert world.ready(key)[0] == "True"
    assert world.routes.by_path["/broker/default/b"].uid != first.by_path["/broker/default/b"].uid


def test_of_two_channels_with_one_address_the_elder_has_it() -> None:
    world = World()
    elder = world.send(channel("x", kind="InMemoryChannel"))
    world.settle()
    world.now_ms += 60_000
    younger = world.send(channel("x"))
    world.settle()
    assert (world.ready(elder)[0], world.ready(younger)) == ("True", ("False", "NameTaken"))
    assert world.routes.by_path["/channel/default/x"].kind == "InMemoryChannel"
    world.delete(elder)
    world.settle()
    assert world.ready(younger)[0] == "True"


def test_a_channel_lists_its_subscribers_in_spec_and_status() -> None:
    """Sections "Channel", "duckv1.SubscriberSpec", "duckv1.SubscriberStatus":
    spec.subscribers MUST be managed automatically by the controller; status.subscribers are their resolved
    addresses."""
    world = World()
    key = world.send(channel(spec={"delivery": {"retry": 2, "deadLetterSink": {"uri": "http://dead/"}}}))
    well = world.send(
        subscription("well", subscriber={"uri": "http://there/"}, reply={"uri": "http://back/"})
    )
    ill = world.send(subscription("ill", subscriber=ref("none")))
    world.settle()
    uids = [text(world.objects[each], "metadata", "uid") for each in (well, ill)]
    assert at(world.objects[key], "spec", "subscribers") == [
        {
            "uid": uids[0],
            "generation": 1,
            "subscriberUri": "http://there/",
            "replyUri": "http://back/",
            "delivery": {"retry": 2, "deadLetterSink": {"uri": "http://dead/"}},
        }
    ]
    listed = at(world.status(key), "subscribers")
    assert listed == [
        {
            "uid": uids[1],
            "generation": 1,
            "observedGeneration": 1,
            "name": "ill",
            "ready": "False",
            "message": "events are not delivered until everything that it refers to exists",
        },
        {"uid": uids[0], "generation": 1, "observedGeneration": 1, "name": "well", "ready": "True"},
    ]
    world.delete(well)
    world.delete(ill)
    world.settle()
    assert at(world.objects[key], "spec", "subscribers") is None
    assert "subscribers" not in world.status(key)


def test_duplicate_detection_is_asked_for_by_annotation() -> None:
    world = World()
    annotations: dict[str, Any] = {"knative-gateway/duplicate-window": "PT1M"}
    world.send(broker(**annotations))
    assert world.settle().routes.by_path["/broker/default/b"].duplicates_ms == 60_000


def test_the_operator_says_how_senders_reach_the_gateway() -> None:
    world = World(Settings("https://events.example"))
    key = world.send(broker())
    assert at(world.settle().status(key), "address", "url") == "https://events.example/broker/default/b"


@pytest.mark.parametrize("uid", ["a", "z"])
def test_of_two_channels_of_one_second_the_one_that_has_the_address_keeps_it(uid: str) -> None:
    world = World()
    first = world.send(channel())
    world.objects[first] = put(world.objects[first], ("metadata", "uid"), uid)
    world.settle()
    second = world.send(channel(kind="InMemoryChannel"))
    world.settle()
    assert (world.ready(first)[0], world.ready(second)) == ("True", ("False", "NameTaken"))
