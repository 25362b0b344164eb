"""docs/knative.md agrees with the gateway: its names, limits and defaults are those of the code."""

import re
import textwrap
from pathlib import Path
from typing import Final

import yaml

from knative_gateway.api import actions
from knative_gateway.config import SubscriberSettings
from knative_gateway.controller.deciding import log_settings
from knative_gateway.controller.deciding.plan import Settings
from knative_gateway.delivery.backoff import RETRY_AFTER_MAX_MS, WAIT_MAX_MS
from knative_gateway.delivery.congestion import LIMIT_MAX
from knative_gateway.delivery.dead_letter import (
    DATA_CHARACTERS_MAX,
    ERROR_CODE,
    ERROR_DATA,
    ERROR_DESTINATION,
    REASON,
    RETRY,
    SUBSCRIBER_URI,
)
from knative_gateway.delivery.outcome import RETRIED
from knative_gateway.delivery.ttl import TTL_DEFAULT
from knative_gateway.dispatcher import metrics
from knative_gateway.filters.refusal import LIMITS as FILTER_LIMITS
from knative_gateway.ingress.app import IngressLimits
from knative_gateway.resources import extensions
from knative_gateway.resources.kinds import BUILT_IN
from knative_gateway.resources.schema.own_kinds import DELIVERY, FILTERS
from knative_gateway.resources.validation import NAME_CHARACTERS_MAX, check_object

TEXT: Final = (Path(__file__).parent.parent / "docs" / "knative.md").read_text()


def section(title: str) -> str:
    """Return the text of one section."""
    return TEXT.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def first_cells(title: str) -> list[str]:
    """Return the first cells of the tables of a section."""
    rows = re.findall(r"^\| (.+?) \|", section(title), re.MULTILINE)
    return [name for row in rows for name in re.findall("`([^`]+)`", row)]


def test_every_annotation_is_told_and_none_is_made_up() -> None:
    known = {
        value
        for name, value in vars(extensions).items()
        if name.isupper() and isinstance(value, str) and "/" in value
    }
    assert set(first_cells("Annotations")) == known - {extensions.PREFIX}


def test_every_field_of_a_delivery_is_told() -> None:
    fields = DELIVERY["properties"]
    assert isinstance(fields, dict)
    assert set(fields) <= set(first_cells("Delivery"))


def test_every_filter_is_told() -> None:
    items = FILTERS["items"]
    assert isinstance(items, dict)
    told = section("Resources")
    assert [dialect for dialect in items["properties"] if dialect != "sql" and dialect not in told] == []


def test_the_attributes_of_dead_letters_are_told() -> None:
    assert {ERROR_DESTINATION, ERROR_CODE, ERROR_DATA, SUBSCRIBER_URI, REASON, RETRY} <= set(
        first_cells("Delivery")
    )


def test_the_answers_that_are_tried_again_are_told() -> None:
    assert (
        f"| none (refused, reset, timeout), {', '.join(map(str, sorted(RETRIED)))}, 5xx | retried |"
        in section("Delivery")
    )


def test_the_settings_of_a_log_are_told() -> None:
    assert log_settings.PARTITIONS_MAX == 1024
    assert f"fixed when it is created | {Settings('http://x').partitions} |" in section("Resources")
    assert "| 10 retries, exponential from 0.2 s |" in section("Resources")


def test_the_limits_are_those_of_the_code() -> None:
    limits = IngressLimits()
    table = section("Limits")
    assert f"| a request's body, a reply | {limits.body_bytes >> 20} MiB (" in table
    assert f"| events of a batch | {limits.batch_events:,} |" in table
    assert f"| seconds until a body has arrived | {limits.body_s:.0f} |" in table
    in_flight = (
        f"adaptive, at most {SubscriberSettings().in_flight} (`subscribers.in_flight`; `in-flight-max`: up to"
        f" {LIMIT_MAX:,})"
    )
    assert f"| deliveries in flight to one subscriber | {in_flight} |" in table
    filters = (
        f"{FILTER_LIMITS.filters:,}, {FILTER_LIMITS.depth} levels; {FILTER_LIMITS.characters_in_all:,}"
        " characters in all CESQL expressions together"
    )
    assert f"| filters of a Trigger | {filters} |" in table
    expression = (
        f"{FILTER_LIMITS.characters:,} characters, {FILTER_LIMITS.tokens:,} tokens, {FILTER_LIMITS.depth}"
        " levels"
    )
    assert f"| a CloudEvents SQL expression | {expression};" in table
    assert f"| name of a Broker, Trigger, Channel, Subscription | {NAME_CHARACTERS_MAX} characters |" in table
    assert f"| one wait between attempts | {WAIT_MAX_MS // 3_600_000} hours |" in table
    assert f"| {RETRY_AFTER_MAX_MS // 60_000} minutes |" in section("Delivery")
    assert f"at most {DATA_CHARACTERS_MAX:,} characters" in section("Delivery")
    assert f"{TTL_DEFAULT} at first" in section("Sending events")


def test_the_example_is_valid() -> None:
    (written,) = re.findall("```yaml\n(.*?)```", TEXT, re.DOTALL)
    for each in yaml.safe_load_all(textwrap.dedent(written)):
        kind = BUILT_IN.of(each["apiVersion"], each["kind"])
        assert kind is not None
        assert check_object(kind, each) == []


def test_every_metric_of_a_subscriber_is_told() -> None:
    told = section("Operations")
    names = [
        *(f"{metrics._PREFIX}{name}_total" for name in metrics._COUNTERS),
        *(metrics._PREFIX + name for name in metrics._GAUGES),
        *metrics._ALL_GAUGES,
    ]
    assert [name for name in names if f"`{name}`" not in told] == []


def test_every_request_beyond_kubernetes_is_told() -> None:
    told = section("Replay") + section("The path of an event")
    assert [name for name in (actions.DELIVERIES, *actions.POSTED) if f"…/{name}" not in told] == []
