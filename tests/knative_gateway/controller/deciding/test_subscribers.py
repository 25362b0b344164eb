"""Triggers and Subscriptions. Sections are those of knative-eventing-test-spec."""

from dataclasses import replace

import pytest

from knative_gateway.addressing import ServiceMap
from knative_gateway.controller.deciding.plan import Settings
from knative_gateway.ports import Order, Start
from knative_gateway.resources.objects import at, entries, text
from tests.knative_gateway.controller.world import (
    BASE,
    World,
    addressable,
    broker,
    channel,
    ref,
    service,
    subscription,
    trigger,
)

SERVING = "serving.knative.dev/v1"


def with_broker(**more: object) -> World:
    world = World()
    world.send(broker(**more))  # type: ignore[arg-type]  # the spec
    return world


def with_channel() -> World:
    world = World()
    world.send(channel())
    return world


# -- Triggers


def test_a_trigger_s_conditions_are_those_that_knative_s_users_know() -> None:
    world = with_broker()
    key = world.send(trigger())
    names = {
        "Ready",
        "BrokerReady",
        "SubscriptionReady",
        "DependencyReady",
        "SubscriberResolved",
        "DeadLetterSinkResolved",
        "OIDCIdentityCreated",
    }
    assert world.settle().conditions(key) == dict.fromkeys(names, "True")


def test_a_trigger_knows_the_brokers_of_its_gateway() -> None:
    """Events for one of them carry the count of the Brokers that they passed."""
    world = with_broker()
    key = world.send(trigger())
    found = world.settle().subscriber(key)
    assert found is not None
    assert found.brokers == f"{world.settings.base_url}/broker/"


def test_a_trigger_is_associated_by_its_broker_s_name() -> None:
    """Section "Broker Lifecycle":

    Triggers MUST be associated with a Broker based on the spec.broker field.
    """
    world = with_broker()
    world.send(broker("other"))
    first, second = world.send(trigger("first")), world.send(trigger("second", of="other"))
    world.settle()
    listed = {path: [each.name for each in route.subscribers] for path, route in world.routes.by_path.items()}
    assert listed == {"/broker/default/b": ["first"], "/broker/default/other": ["second"]}
    assert world.ready(first) == world.ready(second) == ("True", "")


def test_the_resolved_subscriber_is_in_status_before_ready() -> None:
    """Section "Trigger Lifecycle": the controller MUST set status.subscriberUri before setting
    Ready to true.
    """
    world = with_broker()
    key = world.send(trigger(to={**ref("s"), "uri": "/in"}))
    world.send(service("s"))
    world.settle()
    assert world.status(key)["subscriberUri"] == "http://s.default.svc/in"
    for plan in world.plans:
        conditions = at(plan.writes.get(key), "status", "conditions")
        if isinstance(conditions, list) and any(
            each["type"] == "Ready" and each["status"] == "True" for each in conditions
        ):
            assert at(plan.writes[key], "status", "subscriberUri") == "http://s.default.svc/in"


@pytest.mark.parametrize(
    ("destination", "reason"),
    [
        (ref("none"), "NotFound"),
        (ref("k", api_version=SERVING), "NotAddressable"),
        (ref("x", "Nothing"), "NotFound"),
    ],
)
def test_a_subscriber_that_cannot_be_resolved_is_the_empty_string_and_not_ready(
    destination: dict[str, object], reason: str
) -> None:
    """Section "Trigger Lifecycle": Ready MUST be false, at least one condition MUST indicate the reason, and
    status.subscriberUri MUST be the empty string."""
    world = with_broker()
    world.send(addressable("k"))
    key = world.send(trigger(to=destination))
    world.settle()
    assert world.ready(key) == ("False", reason)
    assert world.conditions(key)["SubscriberResolved"] == "False"
    assert world.status(key)["subscriberUri"] == ""
    assert world.subscriber(key) is None


def test_an_addressable_is_followed_as_it_changes() -> None:
    """Section "Destination Resolution": objects which contain a status.address.url."""
    world = with_broker()
    key = world.send(trigger(to=ref("k", api_version=SERVING)))
    for url, status in (("", "False"), ("http://one/", "True"), ("http://two/", "True"), ("", "False")):
        world.send(addressable("k", url))
        world.settle()
        assert (world.status(key)["subscriberUri"], world.ready(key)[0]) == (url, status)


def test_a_trigger_s_dead_letter_sink_is_in_status_before_ready() -> None:
    """Section "Trigger Lifecycle": it MUST be resolved and reported in status.deadLetterSinkUri in the same
    manner.
    """
    world = with_broker()
    key = world.send(trigger(delivery={"deadLetterSink": ref("dead")}))
    world.settle()
    assert (world.status(key)["deadLetterSinkUri"], world.ready(key)) == ("", ("False", "NotFound"))
    assert world.subscriber(key) is None, "what would fail could not be kept"
    world.send(service("dead"))
    world.settle()
    assert (world.status(key)["deadLetterSinkUri"], world.ready(key)) == (
        "http://dead.default.svc/",
        ("True", ""),
    )


def test_ready_comes_only_after_the_data_plane_serves_exactly_this() -> None:
    """Section "Trigger Lifecycle":

    Ready only after the Broker has been configured to send all future events.
    """
    world = with_broker()
    world.settle()
    world.works = False
    key = world.send(trigger())
    world.step()
    assert world.ready(key) == ("Unknown", "Configuring")
    world.works = True
    world.settle()
    assert world.ready(key) == ("True", "")
    world.works = False
    world.patch(key, {"spec": {"subscriber": {"uri": "http://elsewhere/"}}})
    world.step()
    assert world.ready(key) == ("Unknown", "Configuring"), "the old subscriber still gets the events"


def test_a_subscriber_that_the_data_plane_cannot_serve_is_reported() -> None:
    world = with_broker()
    key = world.send(trigger())
    world.settle()
    subscriber = world.subscriber(key)
    assert subscriber is not None
    world.state = replace(world.state, failing={subscriber.uid: "no such offset"})
    world.settle()
    assert world.ready(key) == ("False", "SubscriberFailing")


def test_a_trigger_without_its_broker_waits_for_it() -> None:
    """Section "Trigger Lifecycle": association "either due to creating the Trigger or the Broker"; an orphan
    is not ready.
    """
    world = World()
    key = world.send(trigger())
    world.settle()
    assert world.ready(key) == ("False", "BrokerDoesNotExist")
    broker_key = world.send(broker())
    world.settle()
    assert world.ready(key) == ("True", "")
    world.delete(broker_key)
    world.settle()
    assert world.ready(key) == ("False", "BrokerDoesNotExist")
    assert world.routes.by_path == {}


def test_a_trigger_reports_why_its_broker_is_not_ready() -> None:
    world = with_broker(spec={"delivery": {"deadLetterSink": ref("none")}})
    inherits, own = world.send(trigger("inherits")), world.send(trigger("own", delivery={"retry": 1}))
    world.settle()
    assert world.ready(inherits) == world.ready(own) == ("False", "NotFound")
    assert world.subscriber(inherits) is None
    assert world.subscriber(own) is not None, "the Broker MAY forward to Triggers that are not ready"


def test_delivery_is_inherited_whole_or_not_at_all() -> None:
    """Section "Broker", Spec: if a Trigger specifies any delivery options, this field MUST be ignored."""
    world = with_broker(spec={"delivery": {"retry": 5, "deadLetterSink": {"uri": "http://dead/"}}})
    inherits, own = world.send(trigger("inherits")), world.send(trigger("own", delivery={"retry": 1}))
    world.settle()
    assert world.status(inherits)["deadLetterSinkUri"] == "http://dead/"
    assert "deadLetterSinkUri" not in world.status(own)
    deliveries = [subscriber.delivery for key in (inherits, own) if (subscriber := world.subscriber(key))]
    assert [(each.retry, each.dead_letter_url) for each in deliveries] == [(5, "http://dead/"), (1, None)]


def test_a_trigger_s_filters_and_extensions_reach_the_data_plane() -> None:
    world = with_broker()
    key = world.send(trigger(filter={"attributes": {"type": "a"}}))
    annotations = {
        "knative-gateway/paused": "true",
        "knative-gateway/order": "key",
        "knative-gateway/start": "earliest",
        "knative-gateway/in-flight-max": "7",
        "knative-gateway/per-second-max": "2.5",
    }
    world.patch(key, {"metadata": {"annotations": annotations}})
    world.settle()
    subscriber = world.subscriber(key)
    assert subscriber is not None
    assert subscriber.filters == [{"attributes": {"type": "a"}}]
    assert (subscriber.paused, subscriber.order, subscriber.start) == (True, Order.BY_KEY, Start.EARLIEST)
    assert (subscriber.in_flight_max, subscriber.per_second_max) == (7, 2.5)
    assert subscriber.reply_log == "broker.default.b"
    assert world.ready(key) == ("True", "Paused")
    world.patch(key, {"spec": {"filters": [{"prefix": {"type": "b"}}]}})
    world.settle()
    subscriber = world.subscriber(key)
    assert subscriber is not None
    assert subscriber.filters == [{"prefix": {"type": "b"}}]


def test_a_recreated_trigger_is_another_subscriber() -> None:
    world = with_broker()
    key = world.send(trigger())
    world.settle()
    first = world.subscriber(key)
    world.delete(key)
    world.send(trigger())
    world.settle()
    second = world.subscriber(key)
    assert first is not None
    assert second is not None
    assert first.uid != second.uid


def test_events_are_sent_where_the_operator_s_map_says_and_status_shows_the_name() -> None:
    world = World(Settings(BASE, services=ServiceMap.parse({"s.default": "http://127.0.0.1:9000"})))
    world.send(broker())
    key = world.send(trigger(to={**ref("s"), "uri": "/in"}, delivery={"deadLetterSink": ref("s")}))
    world.settle()
    assert (world.status(key)["subscriberUri"], world.ready(key)[0]) == ("http://s.default.svc/in", "True")
    subscriber = world.subscriber(key)
    assert subscriber is not None
    assert (subscriber.subscriber_url, subscriber.delivery.dead_letter_url) == (
        "http://127.0.0.1:9000/in",
        "http://127.0.0.1:9000/",
    )


def test_a_dependency_must_be_there_and_ready() -> None:
    """Knative: the annotation `knative.dev/dependency`."""
    world = World()
    world.send(broker())
    sent = trigger()
    reference = '{"apiVersion": "messaging.knative.dev/v1", "kind": "Channel", "name": "c"}'
    key = world.send(
        {**sent, "metadata": {"name": "t", "annotations": {"knative.dev/dependency": reference}}}
    )
    world.settle()
    assert world.ready(key) == ("False", "DependencyDoesNotExist")
    world.works = False
    world.send(channel())
    world.settle()
    assert world.ready(key) == ("Unknown", "DependencyNotReady")
    world.works = True
    world.settle()
    assert world.ready(key)[0] == "True"


def test_credentials_of_a_url_are_not_in_status() -> None:
    world = World()
    world.send(channel())
    sink = {"deadLetterSink": {"uri": "http://u:secret@sink/"}}
    world.send(broker())
    keys = [world.send(trigger(to="http://u:secret@there/", delivery=sink))]
    keys.append(world.send(subscription(subscriber={"uri": "http://u:secret@there/"}, delivery=sink)))
    world.settle()
    found = world.subscriber(keys[0])
    assert found is not None
    assert found.subscriber_url == "http://u:secret@there/"
    channel_key = next(key for key in world.objects if key.kind == "Channel")
    for object_ in (world.status(keys[0]), world.status(keys[1]), world.objects[channel_key]):
        assert "secret" not in str(object_)
        assert "http://sink/" in str(object_)


def test_where_an_external_name_leads_to_is_in_the_condition() -> None:
    world = World()
    world.send(broker())
    world.send(service("s", {"type": "ExternalName", "externalName": "there.example"}))
    key = world.send(trigger(to=ref("s")))
    world.settle()
    [told] = [
        each
        for each in entries(world.status(key), "conditions")
        if text(each, "type") == "SubscriberResolved"
    ]
    assert text(told, "message") == "subscriber: events are sent to http://there.example/"


def test_ready_says_that_it_is_paused() -> None:
    """In a table, a paused Trigger must not look healthy."""
    world = World()
    world.send(broker())
    world.send(channel())
    keys = [world.send(trigger()), world.send(subscription())]
    world.settle()
    for key in keys:
        world.patch(key, {"metadata": {"annotations": {"knative-gateway/paused": "true"}}})
    world.settle()
    assert [world.ready(key) for key in keys] == [("True", "Paused")] * 2
    assert {(each.type, each.reason) for plan in world.plans for each in plan.events} >= {
        ("Normal", "Paused"),
        ("Normal", "TriggerReady"),
    }
    for key in keys:
        world.patch(key, {"metadata": {"annotations": {"knative-gateway/paused": None}}})
    world.settle()
    assert [world.ready(key) for key in keys] == [("True", "")] * 2
