"""Triggers and Subscriptions: their destinations and conditions.

A destination that cannot be resolved is the empty string in the status. An object with such a destination
receives no events; they wait in the log. Ready is True only after the data plane serves exactly this
subscriber.

Spec: knative-eventing-test-spec, "Trigger Lifecycle", "Subscription Lifecycle".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from knative_gateway.addressing import Addressing, Unresolved, without_credentials
from knative_gateway.controller.deciding.delivery_specs import Resolved, effective
from knative_gateway.controller.deciding.relations import CHANNELS, broker_of, channel_of
from knative_gateway.controller.deciding.sources import Source
from knative_gateway.filters import trigger_filters
from knative_gateway.ports import Delivery, Key, Subscriber
from knative_gateway.resources.conditions import (
    FALSE,
    PAUSED,
    READY,
    TRUE,
    Condition,
    is_false,
    is_true,
    is_unknown,
    status_of,
)
from knative_gateway.resources.extensions import dependency, of_subscriber
from knative_gateway.resources.kinds import MESSAGING
from knative_gateway.resources.objects import Object, child, group_of, number, same, text, uid_of

DEPENDENCY_READY: Final = "DependencyReady"
OIDC: Final = is_true("OIDCIdentityCreated", "OIDCNotUsed", "deliveries do not carry an identity")


@dataclass(frozen=True, slots=True)
class Parent:
    """The Broker or Channel: its condition Ready, and the delivery options that its members inherit."""

    source: Source
    ready: Condition
    delivery: Resolved


@dataclass(frozen=True, slots=True)
class Member:
    """One Trigger or Subscription. `subscriber` None: it receives no events. `added`: the condition that
    reports whether the data plane serves it.
    """

    key: Key
    resource: Object
    parent: Parent | None
    subscriber: Subscriber | None
    delivery: Resolved
    conditions: tuple[Condition, ...]
    status: Mapping[str, object]
    added: Condition


@dataclass(frozen=True, slots=True)
class Served:
    """The data plane's report: the subscriber as it is served, and why it is not served."""

    subscriber: Subscriber | None = None
    problem: str | None = None


def member(
    key: Key,
    object_: Object,
    parent: Parent | None,
    addressing: Addressing,
    served: Served,
) -> Member:
    """Compute the result for a Trigger or Subscription."""
    return (_trigger if key.kind == "Trigger" else _subscription)(key, object_, parent, addressing, served)


def _trigger(
    key: Key,
    object_: Object,
    parent: Parent | None,
    addressing: Addressing,
    served: Served,
) -> Member:
    """Spec: "Trigger Lifecycle"."""
    broker = broker_of(key, object_)
    delivery = effective(object_, key.namespace, parent.delivery if parent else None, addressing)
    url = addressing.resolve(child(object_, "spec", "subscriber"), key.namespace)
    subscriber = None
    if parent is not None and parent.source.served and not isinstance(url, Unresolved) and delivery.is_usable:
        target = _Target(addressing.reached(url), parent.source.log.need.log, None)
        made = _subscriber(
            key,
            object_,
            target,
            delivery.delivery(addressing),
            trigger_filters(child(object_, "spec")),
        )
        subscriber = replace(made, brokers=addressing.brokers)
    status: dict[str, object] = {"subscriberUri": _shown(url), **delivery.status()}
    added = _added("SubscriptionReady", subscriber, served, _was_added("SubscriptionReady", object_, status))
    conditions = (  # causes first: Ready has the reason of the first False one
        _mirrored(
            "BrokerReady",
            parent,
            "BrokerDoesNotExist",
            f"the Broker {broker.namespace}/{broker.name} does not exist",
        ),
        _resolution("SubscriberResolved", {"subscriber": url}, addressing, key.namespace),
        delivery.condition,
        _dependency(key, object_, addressing),
        OIDC,
        added,
    )
    return Member(key, object_, parent, subscriber, delivery, conditions, status, added)


def _subscription(
    key: Key,
    object_: Object,
    parent: Parent | None,
    addressing: Addressing,
    served: Served,
) -> Member:
    """Spec: "Subscription Lifecycle"."""
    channel = channel_of(key, object_)
    delivery = effective(object_, key.namespace, parent.delivery if parent else None, addressing)
    urls = {
        name: addressing.resolve(given, key.namespace)
        for name in ("subscriber", "reply")
        if (given := child(object_, "spec", name))
    }
    reached = {
        name: None if isinstance(url, Unresolved) else addressing.reached(url) for name, url in urls.items()
    }
    subscriber = None
    is_channel = (channel.group, channel.kind) in {(MESSAGING, kind) for kind in CHANNELS}
    if (
        is_channel
        and parent is not None
        and parent.source.served
        and delivery.is_usable
        and reached
        and None not in reached.values()
    ):
        target = _Target(reached.get("subscriber"), None, reached.get("reply"))
        subscriber = _subscriber(key, object_, target, delivery.delivery(addressing))
    physical: dict[str, object] = {f"{name}Uri": _shown(url) for name, url in urls.items()}
    status: dict[str, object] = {"physicalSubscription": {**physical, **delivery.status()}}
    added = _added("AddedToChannel", subscriber, served, _was_added("AddedToChannel", object_, status))
    if is_channel:
        missing = f"the {channel.kind} {channel.namespace}/{channel.name} does not exist"
        channel_ready = _mirrored("ChannelReady", parent, "ChannelDoesNotExist", missing)
    else:
        channel_ready = is_false(
            "ChannelReady",
            "ChannelKindNotSupported",
            f"a {channel.kind} of {channel.group or 'the core'} is not a supported channel",
        )
    references = _resolution("ReferencesResolved", urls, addressing, key.namespace)
    if references.status == TRUE and delivery.condition.status == FALSE:
        references = is_false(
            "ReferencesResolved",
            delivery.condition.reason,
            f"deadLetterSink: {delivery.condition.message}",
        )
    conditions = (references, channel_ready, OIDC, added)
    return Member(key, object_, parent, subscriber, delivery, conditions, status, added)


@dataclass(frozen=True, slots=True)
class _Target:
    """The URLs to which requests are sent, after resolution."""

    url: str | None
    reply_log: str | None
    reply_url: str | None


def _subscriber(
    key: Key,
    object_: Object,
    target: _Target,
    delivery: Delivery,
    filters: Sequence[Mapping[str, object]] = (),
) -> Subscriber:
    extensions, _ = of_subscriber(object_)
    return Subscriber(
        uid=uid_of(object_),
        kind=key.kind,
        namespace=key.namespace,
        name=key.name,
        generation=number(object_, "metadata", "generation"),
        filters=filters,
        subscriber_url=target.url,
        reply_log=target.reply_log,
        reply_url=target.reply_url,
        delivery=delivery,
        order=extensions.order,
        paused=extensions.paused,
        start=extensions.start,
        start_at=extensions.start_at,
        in_flight_max=extensions.in_flight_max,
        per_second_max=extensions.per_second_max,
    )


def _shown(url: str | Unresolved) -> str:
    return "" if isinstance(url, Unresolved) else without_credentials(url)


def _resolution(
    type_: str,
    urls: Mapping[str, str | Unresolved],
    addressing: Addressing,
    namespace: str,
) -> Condition:
    """Return whether all destinations are resolved, and the addresses that the names of Services are mapped
    to.
    """
    sent: list[str] = []
    for name, url in urls.items():
        if isinstance(url, Unresolved):
            return is_false(type_, url.reason, f"{name}: {url.message}")
        if reached := addressing.shown(url, namespace):
            sent.append(f"{name}: events are sent to {reached}")
    return is_true(type_, "ServiceResolved", "; ".join(sent)) if sent else is_true(type_)


def _dependency(key: Key, trigger: Object, addressing: Addressing) -> Condition:
    """Return the condition for the object that the annotation names."""
    reference, _ = dependency(trigger)
    if not reference:
        return is_true(DEPENDENCY_READY, "NoDependency")
    group, kind, name = (
        group_of(text(reference, "apiVersion")),
        text(reference, "kind"),
        text(reference, "name"),
    )
    found = addressing.lookup(Key(group, kind, key.namespace, name))
    if found is None:
        return is_false(
            DEPENDENCY_READY,
            "DependencyDoesNotExist",
            f"the {kind} {key.namespace}/{name} does not exist",
        )
    ready = status_of(found, READY)
    words = f"{kind} {key.namespace}/{name} is not Ready"
    if ready == TRUE:
        return is_true(DEPENDENCY_READY)
    make = is_false if ready == FALSE else is_unknown
    return make(DEPENDENCY_READY, "DependencyNotReady", words)


def _mirrored(type_: str, parent: Parent | None, missing: str, message: str) -> Condition:
    """Return the parent's condition Ready as a condition of the child."""
    if parent is None:
        return is_false(type_, missing, message)
    ready = parent.ready
    return Condition(type_, ready.status, ready.reason, ready.message)


def _added(type_: str, subscriber: Subscriber | None, served: Served, before: bool) -> Condition:
    """Return whether the data plane serves exactly this subscriber. `before`: the stored status reports it as
    served.

    Spec: "Trigger Lifecycle": Ready is only set after the Broker has been configured to send all future
    events.
    """
    if subscriber is None:
        return is_false(
            type_,
            "NotConfigured",
            "events are not delivered until everything that it refers to exists",
        )
    if served.problem is not None:
        return is_false(type_, "SubscriberFailing", served.problem)
    if not before and subscriber != served.subscriber:
        return is_unknown(type_, "Configuring", "the data plane does not serve it yet")
    return (
        is_true(type_, PAUSED, "events are not delivered while it is paused")
        if subscriber.paused
        else is_true(type_)
    )


def _was_added(type_: str, object_: Object, status: Mapping[str, object]) -> bool:
    """Return whether the stored status reports this generation with these addresses as served.

    Then a cursor is stored, and the next replica that serves the subscriber continues from it.
    """
    stored = child(object_, "status")
    is_current = number(stored, "observedGeneration") == number(object_, "metadata", "generation")
    return (
        is_current
        and status_of(object_, type_) == TRUE
        and all(same(stored.get(name), value) for name, value in status.items())
    )


def subscriber_entry(member_: Member | None) -> object:
    """Return both entries of a Subscription in its Channel; None if it does not exist."""
    return (
        None
        if member_ is None
        else (None if member_.subscriber is None else subscriber_spec(member_), subscriber_status(member_))
    )


def subscriber_spec(member_: Member) -> dict[str, object]:
    """Return the entry of a Subscription in a Channel's spec.subscribers. Spec: "duckv1.SubscriberSpec"."""
    physical = child(member_.status, "physicalSubscription")
    uris = {name: physical[name] for name in ("subscriberUri", "replyUri") if text(physical, name)}
    delivery = member_.delivery.as_uri()
    made: dict[str, object] = {
        "uid": uid_of(member_.resource),
        "generation": number(member_.resource, "metadata", "generation"),
        **uris,
    }
    return {**made, **({"delivery": delivery} if delivery else {})}


def subscriber_status(member_: Member) -> dict[str, object]:
    """Return the entry of a Subscription in a Channel's status.subscribers.

    Spec: "duckv1.SubscriberStatus". Current Knative releases write `observedGeneration`.
    """
    generation = number(member_.resource, "metadata", "generation")
    made: dict[str, object] = {
        "uid": uid_of(member_.resource),
        "generation": generation,
        "observedGeneration": generation,
    }
    made |= {"name": member_.key.name, "ready": member_.added.status}
    return {**made, **({"message": member_.added.message} if member_.added.message else {})}
