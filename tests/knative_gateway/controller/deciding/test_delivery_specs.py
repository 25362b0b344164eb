"""DeliverySpecs. Sections are those of knative-eventing-test-spec."""

from knative_gateway.addressing import Addressing
from knative_gateway.controller.deciding.delivery_specs import effective, resolved
from knative_gateway.ports import BackoffPolicy, Delivery

ADDRESSING = Addressing(lambda key: None)
PARENT = resolved({"retry": 9, "deadLetterSink": {"uri": "http://parent/"}}, "n", ADDRESSING)


def of(delivery: object) -> dict[str, object]:
    return {"spec": {"delivery": delivery}}


def test_every_option_reaches_the_data_plane() -> None:
    """Section "DeliverySpec"."""
    spec = {
        "retry": 3,
        "backoffPolicy": "linear",
        "backoffDelay": "PT0.5S",
        "backoffMax": "PT1M",
        "timeout": "PT2S",
        "retryAfterMax": "PT0S",
        "format": "json",
        "deadLetterSink": {"uri": "http://dead/"},
    }
    delivery = resolved(spec, "n", ADDRESSING).delivery(ADDRESSING)
    assert delivery == Delivery(
        3, BackoffPolicy.LINEAR, 500, 60_000, 2000, 0, "http://dead/", structured=True
    )


def test_no_options_are_one_attempt_and_no_sink() -> None:
    assert resolved({}, "n", ADDRESSING).delivery(ADDRESSING) == Delivery()


def test_any_option_of_its_own_replaces_all_that_are_inherited() -> None:
    """Section "Broker", "Channel": if a Trigger or Subscription specifies any delivery options, this field
    MUST be ignored.
    """
    own = effective(of({"retry": 1}), "n", PARENT, ADDRESSING)
    assert own.delivery(ADDRESSING) == Delivery(retry=1)
    assert own.uri is None


def test_without_options_of_its_own_all_are_inherited() -> None:
    """Section "Broker", "Channel": default delivery options for those which do not specify more-specific
    options.
    """
    nothing: tuple[dict[str, object] | None, ...] = (None, {})
    for delivery in nothing:
        assert effective(of(delivery), "n", PARENT, ADDRESSING) is PARENT
    assert effective({}, "n", None, ADDRESSING).delivery(ADDRESSING) == Delivery()


def test_a_sink_that_cannot_be_resolved_is_the_empty_string_and_a_reason() -> None:
    sink = {"ref": {"apiVersion": "v1", "kind": "Service", "name": "none"}}
    found = resolved({"deadLetterSink": sink}, "n", ADDRESSING)
    assert found.status() == {"deadLetterSinkUri": ""}
    assert (found.condition.status, found.condition.reason, found.is_usable) == ("False", "NotFound", False)


def test_a_sink_is_shown_as_a_uri() -> None:
    """Section "duckv1.SubscriberSpec": the deadLetterSink SHOULD use the uri form."""
    spec = {"retry": 1, "deadLetterSink": {"uri": "http://dead/"}}
    assert resolved(spec, "n", ADDRESSING).as_uri() == spec
    assert resolved({"retry": 1}, "n", ADDRESSING).as_uri() == {"retry": 1}
