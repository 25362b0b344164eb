import pytest

from knative_gateway.delivery.congestion import LIMIT_MAX
from knative_gateway.ports import Order, Start
from knative_gateway.resources.extensions import (
    IN_FLIGHT_LIMIT,
    Extensions,
    dependency,
    duplicate_window_ms,
    injection,
    of_subscriber,
)


def with_annotations(**annotations: str) -> dict[str, object]:
    return {"metadata": {"annotations": annotations}}


@pytest.mark.parametrize(
    ("name", "value", "extensions"),
    [
        ("knative-gateway/paused", "true", Extensions(paused=True)),
        ("knative-gateway/paused", "false", Extensions()),
        ("knative-gateway/start", "new", Extensions()),
        ("knative-gateway/start", "earliest", Extensions(start=Start.EARLIEST)),
        (
            "knative-gateway/start",
            "time=2026-01-01T00:00:00Z",
            Extensions(start=Start.TIME, start_at="2026-01-01T00:00:00Z"),
        ),
        (
            "knative-gateway/start",
            "offset=0=0000000000000007,1=@latest",
            Extensions(start=Start.OFFSET, start_at="0=0000000000000007,1=@latest"),
        ),
        ("knative-gateway/order", "key", Extensions(order=Order.BY_KEY)),
        ("knative-gateway/order", "ordered", Extensions(order=Order.ORDERED)),
        ("kafka.eventing.knative.dev/delivery.order", "ordered", Extensions(order=Order.ORDERED)),
        ("kafka.eventing.knative.dev/delivery.order", "unordered", Extensions()),
        ("knative-gateway/in-flight-max", "5", Extensions(in_flight_max=5)),
        ("knative-gateway/per-second-max", "0.5", Extensions(per_second_max=0.5)),
        ("somebody.else/paused", "perhaps", Extensions()),
    ],
)
def test_an_annotation_asks_for_an_extension(name: str, value: str, extensions: Extensions) -> None:
    assert of_subscriber(with_annotations(**{name: value})) == (extensions, [])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("knative-gateway/paused", "yes"),
        ("knative-gateway/start", "yesterday"),
        ("knative-gateway/start", "time=yesterday"),
        ("knative-gateway/start", "offset=7"),
        ("knative-gateway/start", "offset=0=-5"),
        ("knative-gateway/start", "offset=0=abc"),
        ("knative-gateway/start", "offset=0=1.5"),
        ("knative-gateway/order", "Ordered"),
        ("kafka.eventing.knative.dev/delivery.order", "key"),
        ("knative-gateway/in-flight-max", "0"),
        ("knative-gateway/in-flight-max", "-1"),
        ("knative-gateway/in-flight-max", "1025"),
        ("knative-gateway/per-second-max", "0"),
        ("knative-gateway/per-second-max", "many"),
        ("knative-gateway/pause", "true"),
        ("knative-gateway/duplicate-window", "PT1M"),
    ],
)
def test_a_wrong_or_misspelt_one_is_reported_and_counts_as_absent(name: str, value: str) -> None:
    extensions, (cause,) = of_subscriber(with_annotations(**{name: value}))
    assert extensions == Extensions()
    assert cause.field == f"metadata.annotations[{name}]"


def test_no_more_can_be_asked_for_than_is_given() -> None:
    assert IN_FLIGHT_LIMIT == LIMIT_MAX


def test_ours_goes_before_the_kafka_broker_s() -> None:
    both = with_annotations(
        **{"knative-gateway/order": "key", "kafka.eventing.knative.dev/delivery.order": "ordered"}
    )
    assert of_subscriber(both)[0].order is Order.BY_KEY


@pytest.mark.parametrize(
    ("written", "window_ms", "causes"),
    [(None, None, 0), ("PT5M", 300_000, 0), ("PT0S", None, 0), ("5m", None, 1)],
)
def test_duplicates_are_looked_for_within_a_window(
    written: str | None, window_ms: int | None, causes: int
) -> None:
    source = with_annotations(**({"knative-gateway/duplicate-window": written} if written else {}))
    window, told = duplicate_window_ms(source)
    assert (window, len(told)) == (window_ms, causes)


def test_a_source_has_no_subscriber_s_annotations() -> None:
    assert len(duplicate_window_ms(with_annotations(**{"knative-gateway/paused": "true"}))[1]) == 1


@pytest.mark.parametrize(
    "written",
    [
        "x",
        "[]",
        "{}",
        '{"apiVersion": "v1", "kind": "Service", "name": ""}',
        '{"apiVersion": "", "kind": "Service", "name": "s"}',
        '{"apiVersion": "v1", "name": "s"}',
        '{"apiVersion": "v1", "kind": "Service", "name": "s", "namespace": "other"}',
        "[" * 100_000,
    ],
)
def test_a_dependency_that_is_not_a_reference_in_its_own_namespace_is_refused(written: str) -> None:
    trigger = {"metadata": {"namespace": "n", "annotations": {"knative.dev/dependency": written}}}
    reference, causes = dependency(trigger)
    assert (reference, [cause.field for cause in causes]) == (
        {},
        ["metadata.annotations[knative.dev/dependency]"],
    )


def test_injection_is_enabled_or_disabled() -> None:
    for written, wrong in (("enabled", 0), ("disabled", 0), ("yes", 1)):
        assert (
            len(injection({"metadata": {"annotations": {"eventing.knative.dev/injection": written}}}))
            == wrong
        )
