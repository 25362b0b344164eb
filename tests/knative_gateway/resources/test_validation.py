import pytest

from knative_gateway.resources.defaults import BROKER_CLASS
from knative_gateway.resources.kinds import definition
from knative_gateway.resources.objects import Object, drop, put
from knative_gateway.resources.validation import check_object
from tests.knative_gateway.resources.made import NOW, SUBSCRIPTION, TRIGGER, kind, made

REF = {"apiVersion": "v1", "kind": "Service", "name": "s"}


def told(name: str, object_: Object, old: Object | None = None) -> list[str]:
    """Return the fields with errors."""
    return [cause.field for cause in check_object(kind(name), object_, old)]


def test_valid_objects_have_no_problems() -> None:
    for name, object_ in (
        ("Trigger", TRIGGER),
        ("Subscription", SUBSCRIPTION),
        ("Broker", made("Broker", {})),
        ("Namespace", made("Namespace")),
    ):
        assert told(name, object_) == []
        assert told(name, object_, object_) == []


@pytest.mark.parametrize(
    ("destination", "field"),
    [
        ({}, "spec.subscriber"),
        ({"uri": ""}, "spec.subscriber"),
        ({"uri": "/relative"}, "spec.subscriber.uri"),
        ({"uri": "pubsub://topic"}, "spec.subscriber.uri"),
        ({"uri": "http:///path"}, "spec.subscriber.uri"),
        ({"uri": "http://a b/"}, "spec.subscriber.uri"),
        ({"uri": "http://[::1/"}, "spec.subscriber.uri"),
        ({"uri": "http://host:port/"}, "spec.subscriber.uri"),
        ({"uri": "http://h/" + "x" * 2048}, "spec.subscriber.uri"),
        ({"ref": {"kind": "Service", "name": "s"}}, "spec.subscriber.ref.apiVersion"),
        ({"ref": {"apiVersion": "v1", "name": "s"}}, "spec.subscriber.ref.kind"),
        ({"ref": {"apiVersion": "v1", "kind": "Service"}}, "spec.subscriber.ref.name"),
    ],
)
def test_a_destination_without_an_address_is_refused(destination: Object, field: str) -> None:
    """knative-eventing-test-spec, "duckv1.Destination", "KReference"."""
    assert told("Trigger", put(TRIGGER, ("spec", "subscriber"), destination)) == [field]


@pytest.mark.parametrize(
    "destination",
    [
        {"uri": "http://h"},
        {"uri": "https://h:8443/p?q=1"},
        {"ref": REF},
        {"ref": REF, "uri": "/p"},
        {"ref": REF, "uri": "http://h/"},
        {"ref": REF, "uri": "p"},
    ],
)
def test_a_destination_may_be_a_reference_or_a_url_or_both(destination: Object) -> None:
    assert told("Trigger", put(TRIGGER, ("spec", "subscriber"), destination)) == []


def test_a_trigger_needs_a_broker_and_a_subscriber() -> None:
    """knative-eventing-test-spec, "Trigger", Spec: REQUIRED fields."""
    assert told("Trigger", made("Trigger", {})) == ["spec.broker", "spec.subscriber"]
    assert told("Trigger", put(TRIGGER, ("spec", "broker"), "not a valid log name")) == ["spec.broker"]


def test_a_trigger_s_broker_never_changes() -> None:
    """knative-eventing-test-spec, "Trigger Lifecycle": spec.broker MUST NOT permit updates."""
    assert told("Trigger", put(TRIGGER, ("spec", "broker"), "other"), TRIGGER) == ["spec.broker"]
    assert told("Trigger", put(TRIGGER, ("spec", "subscriber", "uri"), "http://other"), TRIGGER) == []


def test_a_trigger_s_filters_and_annotations_are_checked() -> None:
    trigger = put(TRIGGER, ("spec", "filters"), [{"exact": {"X": "y"}}])
    trigger = put(trigger, ("spec", "filter"), {"attributes": {"Y": "z"}})
    trigger = put(trigger, ("metadata", "annotations"), {"knative-gateway/paused": "perhaps"})
    assert sorted(told("Trigger", trigger)) == [
        "metadata.annotations[knative-gateway/paused]",
        "spec.filter.attributes[Y]",
        "spec.filters[0].exact[X]",
    ]


@pytest.mark.parametrize(
    ("filter_", "words"),
    [
        ({"exact": {"type": "a"}, "prefix": {"type": "b"}}, "multiple dialects found"),
        ({"cesql": "type ="}, "parse error"),
        ({"regex": {"type": "."}}, "unknown dialect"),
    ],
)
def test_a_filter_that_is_not_valid_is_reported_with_its_position(filter_: Object, words: str) -> None:
    (cause,) = check_object(kind("Trigger"), put(TRIGGER, ("spec", "filters"), [filter_]))
    assert cause.field.startswith("spec.filters[0]")
    assert words in cause.words


LONG = [{"cesql": f"type = '{number}{'a' * 4000}'"} for number in range(10)]
"""More expressions than a new Trigger may have: an earlier version stored them."""


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("metadata", "annotations"), {"knative-gateway/paused": "true"}),
        (("metadata", "labels"), {"a": "b"}),
        (("spec", "subscriber"), {"uri": "http://other/"}),
        (("spec", "delivery"), {"retry": 3}),
        (("spec", "filters"), []),
        (("spec", "filters"), LONG[:3]),
    ],
)
def test_what_an_earlier_version_stored_can_be_changed_except_the_field_that_is_not_valid(
    path: tuple[str, ...], value: object
) -> None:
    old = put(TRIGGER, ("spec", "filters"), LONG)
    assert told("Trigger", old), "a new one is refused"
    assert told("Trigger", old, old) == []
    new = put(old, path, value)
    assert told("Trigger", new, old) == []
    wrong = put(new, ("metadata", "annotations"), {"knative-gateway/paused": "perhaps"})
    assert told("Trigger", wrong, old) == ["metadata.annotations[knative-gateway/paused]"]
    assert told("Trigger", put(wrong, ("spec", "subscriber"), {}), wrong) == ["spec.subscriber"]


@pytest.mark.parametrize("filters", [LONG[1:], [*LONG, {"exact": {"type": "a"}}], LONG[::-1]])
def test_a_field_that_is_not_valid_changes_only_to_a_valid_one(filters: list[Object]) -> None:
    old = put(TRIGGER, ("spec", "filters"), LONG)
    assert told("Trigger", put(TRIGGER, ("spec", "filters"), filters), old)


def test_an_error_that_a_change_of_another_field_causes_is_reported() -> None:
    reply = put(drop(SUBSCRIPTION, ("spec", "subscriber")), ("spec", "reply"), {"uri": "http://there/"})
    assert told("Subscription", drop(reply, ("spec", "reply")), reply) == ["spec.subscriber"]


def test_an_annotation_that_is_not_valid_does_not_hinder_others() -> None:
    old = made("ConfigMap", annotations={"not one": "v", "a": "b"}, labels={"-": "v"})
    new = put(old, ("metadata", "annotations", "a"), "c")
    assert told("ConfigMap", new, old) == []
    assert told("ConfigMap", put(new, ("metadata", "annotations", "not one"), "w"), old) == [
        "metadata.annotations[not one]"
    ]


def test_a_broker_s_class_and_config_never_change() -> None:
    """knative-eventing-test-spec, "Broker Lifecycle": the class annotation and spec.config MUST be
    immutable.
    """
    config = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c"}
    old = made("Broker", {"config": config}, annotations={BROKER_CLASS: "A"})
    assert told("Broker", put(old, ("metadata", "annotations", BROKER_CLASS), "B"), old) == [
        f"metadata.annotations[{BROKER_CLASS}]"
    ]
    assert told("Broker", put(old, ("spec", "config", "name"), "d"), old) == ["spec.config"]
    assert told("Broker", drop(old, ("spec", "config")), old) == ["spec.config"]
    assert told("Broker", put(old, ("spec", "delivery"), {"retry": 3}), old) == []


def test_a_broker_s_config_is_a_whole_reference() -> None:
    assert told("Broker", made("Broker", {"config": {"name": "c"}})) == [
        "spec.config.apiVersion",
        "spec.config.kind",
    ]


def test_a_channel_s_template_never_changes() -> None:
    """knative-eventing-test-spec, "Channel Lifecycle": spec.channelTemplate MUST be immutable."""
    old = made(
        "Channel", {"channelTemplate": {"apiVersion": "messaging.knative.dev/v1", "kind": "InMemoryChannel"}}
    )
    assert told("Channel", put(old, ("spec", "channelTemplate", "spec"), {"partitions": 2}), old) == [
        "spec.channelTemplate"
    ]
    assert told("Channel", put(old, ("spec", "delivery"), {"retry": 2}), old) == []
    assert told("Channel", made("Channel", {"channelTemplate": {"kind": "K"}})) == [
        "spec.channelTemplate.apiVersion"
    ]


def test_a_subscription_s_channel_is_of_the_same_namespace_and_never_changes() -> None:
    """knative-eventing-test-spec, "Subscription Lifecycle": namespace MUST be unset; spec.channel MUST NOT
    permit updates.
    """
    assert told("Subscription", put(SUBSCRIPTION, ("spec", "channel", "namespace"), "n")) == [
        "spec.channel.namespace"
    ]
    assert told("Subscription", put(SUBSCRIPTION, ("spec", "channel", "namespace"), "")) == []
    assert told("Subscription", put(SUBSCRIPTION, ("spec", "channel", "name"), "d"), SUBSCRIPTION) == [
        "spec.channel"
    ]
    assert told("Subscription", drop(SUBSCRIPTION, ("spec", "channel"))) == ["spec.channel"]
    assert told("Subscription", drop(SUBSCRIPTION, ("spec", "channel", "name"))) == ["spec.channel.name"]


def test_a_subscription_needs_a_subscriber_or_a_reply() -> None:
    """knative-eventing-test-spec, "Subscription Lifecycle": at least one of spec.subscriber and spec.reply
    MUST be set.
    """
    neither = drop(SUBSCRIPTION, ("spec", "subscriber"))
    assert told("Subscription", neither) == ["spec.subscriber"]
    assert told("Subscription", put(neither, ("spec", "reply"), {"uri": "http://there/"})) == []
    assert told("Subscription", put(SUBSCRIPTION, ("spec", "reply"), {"uri": "there"})) == ["spec.reply.uri"]


@pytest.mark.parametrize("name", ["Broker", "Channel", "InMemoryChannel"])
@pytest.mark.parametrize(
    ("delivery", "field"),
    [
        ({"backoffDelay": "2s"}, "spec.delivery.backoffDelay"),
        ({"timeout": "PT0S"}, "spec.delivery.timeout"),
        ({"backoffMax": "PT0S"}, "spec.delivery.backoffMax"),
        ({"retryAfterMax": "soon"}, "spec.delivery.retryAfterMax"),
        ({"deadLetterSink": {}}, "spec.delivery.deadLetterSink"),
        ({"deadLetterSink": {"uri": "dead"}}, "spec.delivery.deadLetterSink.uri"),
    ],
)
def test_a_delivery_s_times_and_sink_are_checked(name: str, delivery: Object, field: str) -> None:
    template = {"channelTemplate": {"apiVersion": "a", "kind": "b"}} if name == "Channel" else {}
    assert told(name, made(name, {"delivery": delivery, **template})) == [field]
    assert (
        told(name, made(name, {"delivery": {"retryAfterMax": "PT0S", "backoffDelay": "PT0S"}, **template}))
        == []
    )


@pytest.mark.parametrize(
    ("name", "called", "right"),
    [
        ("Trigger", "a.b-c", True),
        ("Trigger", "A", False),
        ("Trigger", "-a", False),
        ("Trigger", "a..b", False),
        ("Trigger", "x" * 180, True),
        ("Trigger", "x" * 181, False),
        ("Namespace", "a-b", True),
        ("Namespace", "a.b", False),
        ("Namespace", "x" * 64, False),
        ("ConfigMap", "x" * 200, True),
        ("Trigger", "", False),
    ],
)
def test_names_are_those_that_kubernetes_allows(name: str, called: str, right: bool) -> None:
    object_ = put(TRIGGER if name == "Trigger" else made(name), ("metadata", "name"), called)
    assert told(name, object_) == ([] if right else ["metadata.name"])


def test_labels_and_annotations_are_those_that_kubernetes_allows() -> None:
    labels = {"a.b/c": "d", "x": "", "-": "v", "y": "not one"}
    annotations = {"a/b": "anything at all", "not one": "v"}
    assert told("ConfigMap", made("ConfigMap", labels=labels)) == ["metadata.labels[-]", "metadata.labels[y]"]
    assert told("ConfigMap", made("ConfigMap", annotations=annotations)) == ["metadata.annotations[not one]"]
    assert told("ConfigMap", made("ConfigMap", annotations={"a": "x" * (1 << 18)})) == [
        "metadata.annotations"
    ]


def test_a_definition_is_named_after_what_it_declares_and_stays_so() -> None:
    right = definition(kind("Broker"), NOW)
    assert told("CustomResourceDefinition", right) == []
    assert told("CustomResourceDefinition", put(right, ("metadata", "name"), "x")) == ["metadata.name"]
    assert told("CustomResourceDefinition", put(right, ("spec", "versions"), [])) == ["spec.versions"]
    assert told("CustomResourceDefinition", put(right, ("spec", "scope"), "Cluster"), right) == ["spec.scope"]


def test_an_immutable_config_map_never_changes() -> None:
    old = {**made("ConfigMap"), "data": {"a": "1"}, "immutable": True}
    assert told("ConfigMap", {**old, "data": {"a": "2"}}, old) == ["data"]
    assert told("ConfigMap", {**old, "immutable": False}, old) == ["immutable"]
    assert told("ConfigMap", {**old, "data": {}}, {**old, "immutable": False}) == []


def test_an_external_name_is_a_dns_name() -> None:
    kind_ = kind("Service")
    for name, wrong in (("host.example", 0), ("evil/x?", 1), ("u:p@evil", 1), ("", 1)):
        service = {**made("Service", {"type": "ExternalName", "externalName": name})}
        assert [cause.field for cause in check_object(kind_, service)] == ["spec.externalName"] * wrong
