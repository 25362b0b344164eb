import pytest

from knative_gateway.resources.objects import at
from knative_gateway.resources.schema.checking import check
from tests.knative_gateway.resources.made import kind

# knative-eventing-test-spec, "Detailed Resources": every field of spec and status.
FIELDS = {
    "Broker": [
        "spec.config",
        "spec.delivery",
        "status.conditions",
        "status.observedGeneration",
        "status.address.url",
        "status.deadLetterSinkUri",
    ],
    "Trigger": [
        "spec.broker",
        "spec.filter.attributes",
        "spec.subscriber",
        "spec.delivery",
        "status.conditions",
        "status.observedGeneration",
        "status.subscriberUri",
        "status.deadLetterSinkUri",
    ],
    "Channel": [
        "spec.channelTemplate",
        "spec.subscribers",
        "spec.delivery",
        "status.conditions",
        "status.observedGeneration",
        "status.address.url",
        "status.subscribers",
        "status.deadLetterSinkUri",
    ],
    "Subscription": [
        "spec.channel",
        "spec.subscriber",
        "spec.reply",
        "spec.delivery",
        "status.conditions",
        "status.observedGeneration",
        "status.physicalSubscription.subscriberUri",
        "status.physicalSubscription.replyUri",
        "status.physicalSubscription.deadLetterSinkUri",
    ],
}
PARTS = {
    "spec.delivery": ["deadLetterSink.ref", "deadLetterSink.uri", "retry", "backoffDelay", "backoffPolicy"],
    "spec.subscriber": ["ref.apiVersion", "ref.kind", "ref.name", "ref.namespace", "uri"],
}


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_that_the_specification_requires_is_in_the_schema(name: str) -> None:
    """knative-eventing-test-spec, "Detailed Resources": all implementations MUST include all schema fields in
    their API.
    """
    for field in FIELDS[name]:
        path = [step for part in field.split(".") for step in ("properties", part)]
        assert at(kind(name).schema, *path) is not None, field
        for part in PARTS.get(field, []):
            inner = [step for each in part.split(".") for step in ("properties", each)]
            assert at(kind(name).schema, *path, *inner) is not None, f"{field}.{part}"


def test_the_parts_of_subscribers_are_in_the_schema_of_a_channel() -> None:
    """knative-eventing-test-spec, "duckv1.SubscriberSpec" and "duckv1.SubscriberStatus"."""
    spec = at(
        kind("Channel").schema, "properties", "spec", "properties", "subscribers", "items", "properties"
    )
    status = at(
        kind("Channel").schema, "properties", "status", "properties", "subscribers", "items", "properties"
    )
    assert isinstance(spec, dict)
    assert isinstance(status, dict)
    assert {"uid", "generation", "subscriberUri", "replyUri", "delivery"} <= spec.keys()
    assert {"uid", "generation", "ready", "message"} <= status.keys()


def test_no_field_beyond_the_specification_is_required() -> None:
    """knative-eventing-test-spec, "Detailed Resources": implementations MUST NOT require spec fields outside
    of it.
    """
    for name in FIELDS:
        assert "required" not in kind(name).schema
        assert at(kind(name).schema, "properties", "spec", "required") is None


@pytest.mark.parametrize(
    ("delivery", "field"),
    [
        ({"retry": -1}, "spec.delivery.retry"),
        ({"retry": "3"}, "spec.delivery.retry"),
        ({"backoffPolicy": "cubic"}, "spec.delivery.backoffPolicy"),
    ],
)
def test_a_delivery_that_is_not_possible_is_reported(delivery: dict[str, object], field: str) -> None:
    assert [
        cause.field for cause in check(kind("Trigger").schema, {"spec": {"delivery": delivery}}).causes
    ] == [field]
