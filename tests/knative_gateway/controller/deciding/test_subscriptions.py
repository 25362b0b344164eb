"""Subscriptions: their conditions, addresses, inheritance.

Sections are those of knative-eventing-test-spec.
"""

from typing import Any

import pytest

from knative_gateway.resources.objects import at
from tests.knative_gateway.controller.world import (
    World,
    channel,
    ref,
    service,
    subscription,
)

SERVING = "serving.knative.dev/v1"


def with_channel() -> World:
    world = World()
    world.send(channel())
    return world


# -- Subscriptions


def test_a_subscription_s_conditions_are_those_that_knative_s_users_know() -> None:
    world = with_channel()
    key = world.send(subscription())
    names = {"Ready", "ReferencesResolved", "AddedToChannel", "ChannelReady", "OIDCIdentityCreated"}
    assert world.settle().conditions(key) == dict.fromkeys(names, "True")


@pytest.mark.parametrize("kind", ["Channel", "InMemoryChannel"])
def test_a_subscription_is_associated_by_its_channel_reference(kind: str) -> None:
    """Section "Channel Lifecycle":

    Subscriptions MUST be associated with a Channel based on the spec.channel field.
    """
    world = World()
    world.send(channel("c", kind=kind))
    key = world.send(subscription(kind=kind))
    world.settle()
    subscriber = world.subscriber(key)
    assert subscriber is not None
    assert world.routes.by_path["/channel/default/c"].subscribers == (subscriber,)
    assert subscriber.reply_log is None


def test_a_subscription_without_a_ready_channel_is_not_ready() -> None:
    """Section "Subscription Lifecycle":

    Ready MUST NOT be true, and the reason SHOULD indicate the missing or unready Channel.
    """
    world = World()
    key = world.send(subscription())
    world.settle()
    assert world.ready(key) == ("False", "ChannelDoesNotExist")
    channel_key = world.send(channel(spec={"delivery": {"deadLetterSink": ref("none")}}))
    own = world.send(subscription("own", subscriber={"uri": "http://there/"}, delivery={"retry": 1}))
    world.settle()
    assert world.ready(channel_key)[0] == world.ready(own)[0] == "False"
    assert world.conditions(own)["ChannelReady"] == "False"
    other = world.send(subscription("other", kind="Thing"))
    assert world.settle().ready(other) == ("False", "ChannelKindNotSupported")


def test_every_address_of_a_subscription_is_resolved_into_status() -> None:
    """Section "Subscription Lifecycle": status.physicalSubscription URIs MUST be set before setting Ready to
    true.
    """
    world = with_channel()
    world.send(service("s"))
    spec: dict[str, Any] = {
        "subscriber": ref("s"),
        "reply": {"uri": "http://back/"},
        "delivery": {"deadLetterSink": {**ref("s"), "uri": "/dead"}},
    }
    key = world.send(subscription(**spec))
    world.settle()
    assert world.ready(key) == ("True", "")
    assert world.status(key)["physicalSubscription"] == {
        "subscriberUri": "http://s.default.svc/",
        "replyUri": "http://back/",
        "deadLetterSinkUri": "http://s.default.svc/dead",
    }


@pytest.mark.parametrize(
    ("field", "status"),
    [("subscriber", "subscriberUri"), ("reply", "replyUri"), ("deadLetterSink", "deadLetterSinkUri")],
)
def test_an_address_that_fails_is_the_empty_string_and_not_ready(field: str, status: str) -> None:
    """Section "Subscription Lifecycle":

    Ready MUST be false with a reason; the URI MUST be the empty string.
    """
    world = with_channel()
    spec: dict[str, Any] = {"subscriber": {"uri": "http://there/"}}
    spec |= {"delivery": {field: ref("none")}} if field == "deadLetterSink" else {field: ref("none")}
    key = world.send(subscription(**spec))
    world.settle()
    assert world.ready(key) == ("False", "NotFound")
    assert world.conditions(key)["ReferencesResolved"] == "False"
    assert at(world.status(key), "physicalSubscription", status) == ""
    assert world.subscriber(key) is None


def test_a_subscription_with_a_reply_only_sends_there() -> None:
    """Section "Subscription Lifecycle": if only spec.reply is set, the behavior is equivalent to setting
    spec.subscriber.
    """
    world = with_channel()
    key = world.send(subscription(reply={"uri": "http://back/"}))
    world.settle()
    subscriber = world.subscriber(key)
    assert subscriber is not None
    assert (subscriber.subscriber_url, subscriber.reply_url) == (None, "http://back/")
    assert world.status(key)["physicalSubscription"] == {"replyUri": "http://back/"}
    assert world.ready(key) == ("True", "")


def test_a_subscription_is_ready_only_after_the_channel_serves_it() -> None:
    """Section "Subscription Lifecycle":

    Ready only after the Channel has been configured to send all future events.
    """
    world = with_channel()
    world.settle()
    world.works = False
    key = world.send(subscription())
    world.step()
    assert world.ready(key) == ("Unknown", "Configuring")
    world.works = True
    assert world.settle().ready(key) == ("True", "")


def test_a_subscription_inherits_delivery_whole_or_not_at_all() -> None:
    """Section "Channel", Spec: if a Subscription specifies any delivery options, this field MUST be
    ignored.
    """
    world = World()
    world.send(channel(spec={"delivery": {"retry": 5, "deadLetterSink": {"uri": "http://dead/"}}}))
    inherits = world.send(subscription("inherits"))
    own = world.send(subscription("own", subscriber={"uri": "http://there/"}, delivery={"retry": 1}))
    world.settle()
    deliveries = [subscriber.delivery for key in (inherits, own) if (subscriber := world.subscriber(key))]
    assert [(each.retry, each.dead_letter_url) for each in deliveries] == [(5, "http://dead/"), (1, None)]
    assert at(world.status(inherits), "physicalSubscription", "deadLetterSinkUri") == "http://dead/"
