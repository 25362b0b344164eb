import pytest

from amqp_streams.log_settings import LOG_SETTINGS
from knative_gateway.config import RETENTION_MIN_S
from knative_gateway.controller.deciding.log_settings import (
    RETENTION_MS_MIN,
    WELL_KNOWN,
    of_broker,
    of_channel,
)
from knative_gateway.controller.deciding.plan import LogNeed, Settings
from knative_gateway.ports import Key
from knative_gateway.resources.objects import Object

SETTINGS = Settings("http://g", partitions=4, retention_ms=1000)
CONFIG = Key("", "ConfigMap", "n", "c")


def from_data(data: Object, broker: Object | None = None) -> tuple[LogNeed, Object | None, str]:
    found = of_broker("l", broker or {}, {"data": data}, CONFIG, SETTINGS)
    return found.need, found.delivery, found.problem[0] if found.problem else ""


def test_without_a_config_the_operator_s_defaults_hold() -> None:
    found = of_broker("l", {}, None, None, SETTINGS)
    assert (found.need, found.delivery, found.problem) == (LogNeed("l", 4, 1000), None, None)


@pytest.mark.parametrize(
    ("data", "need"),
    [
        ({"partitions": "8", "retention": "P7D"}, LogNeed("l", 8, 604_800_000)),
        ({"default.topic.partitions": "10", "bootstrap.servers": "left alone"}, LogNeed("l", 10, 1000)),
        ({"retention": "PT0S"}, LogNeed("l", 4, None)),
        ({}, LogNeed("l", 4, 1000)),
    ],
)
def test_a_config_map_says_how_the_log_is_made(data: Object, need: LogNeed) -> None:
    assert from_data(data) == (need, SETTINGS.defaults.broker_delivery, "")


def test_a_config_map_may_have_the_delivery_of_brokers_without_one() -> None:
    data = {"delivery": "retry: 3\nbackoffPolicy: linear\nbackoffDelay: PT1S\n"}
    assert from_data(data)[1] == {"retry": 3, "backoffPolicy": "linear", "backoffDelay": "PT1S"}
    assert from_data({"delivery": '{"retry": 2}'})[1] == {"retry": 2}
    assert from_data(data, {"spec": {"delivery": {"retry": 9}}})[1] is None


@pytest.mark.parametrize(
    "data",
    [
        {"partitions": "0"},
        {"partitions": "many"},
        {"partitions": "5000"},
        {"retention": "7d"},
        {"retention": "PT0.999S"},
        {"retention": "PT0.0000001S"},
        {"delivery": "retry: -1"},
        {"delivery": "retries: 1"},
        {"delivery": "backoffDelay: 1s"},
        {"delivery": "just words"},
        {"delivery": "{"},
        {"delivery": "x" * 20_000},
        {"delivery": "a: &a [*a]"},
        {"delivery": "retry: !!bool x"},
        {"delivery": "10: 3"},
        {"delivery": "on: 3"},
        {"delivery": "1.5: x"},
        {"delivery": "~: 1"},
        {"delivery": "2026-01-31: 1"},
        {"delivery": "deadLetterSink: {ref: {1: x}}"},
        {"delivery": "retry: !!timestamp abc"},
        {"delivery": 'retry: !!int ""'},
        {"delivery": "retry: 1\n---\nretry: 2"},
        {"delivery": "[" * 10_000},
        {"delivery": f"retry: 0x{'f' * 4300}"},
        {"partitions": 10**5000},
        {"retention": 10**5000},
    ],
)
def test_a_config_that_is_not_valid_is_reported(data: Object) -> None:
    assert from_data(data)[2] == "ConfigInvalid"


def test_aliases_cannot_make_a_small_delivery_large() -> None:
    """Ten levels of ten: the controller decides about each Broker, so it would be busy for days."""
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{each}: &a{each} [{', '.join([f'*a{each - 1}'] * 10)}]" for each in range(1, 10)]
    broker = {"metadata": {"namespace": "n"}}
    found = of_broker("l", broker, {"data": {"delivery": "\n".join(levels)}}, CONFIG, SETTINGS)
    assert found.problem is not None
    assert "more than" in found.problem[1]


def test_a_config_that_does_not_exist_is_reported_unless_it_is_knative_s_own() -> None:
    assert of_broker("l", {}, None, CONFIG, SETTINGS).problem == (
        "ConfigNotFound",
        "ConfigMap n/c does not exist",
    )
    known = of_broker("l", {}, None, WELL_KNOWN, SETTINGS)
    assert (known.problem, known.delivery) == (None, SETTINGS.defaults.broker_delivery)
    secret = of_broker("l", {}, None, Key("", "Secret", "n", "c"), SETTINGS)
    assert secret.problem is not None
    assert secret.problem[0] == "ConfigKindNotSupported"


def test_a_channel_s_template_says_how_its_log_is_made() -> None:
    def need(template: Object) -> LogNeed:
        return of_channel("l", {"spec": {"channelTemplate": {"spec": template}}}, SETTINGS).need

    assert need({"partitions": 2, "retention": "PT1S"}) == LogNeed("l", 2, 1000)
    assert need({"numPartitions": 3, "retentionDuration": "PT168H"}) == LogNeed("l", 3, 604_800_000)
    assert of_channel("l", {}, SETTINGS).need == LogNeed("l", 4, 1000)
    assert (
        of_channel("l", {"spec": {"channelTemplate": {"spec": {"partitions": True}}}}, SETTINGS).problem
        is not None
    )


def test_the_content_of_a_config_map_of_another_namespace_is_not_shown() -> None:
    """A reader of the Broker's status may lack the right to read that ConfigMap."""
    told = {"metadata": {"namespace": "n"}}, {"metadata": {"namespace": "other"}}
    for data in ({"partitions": "TOPSECRET"}, {"delivery": "TOPSECRET: 1"}, {"delivery": "x: *TOPSECRET"}):
        own, foreign = (of_broker("l", broker, {"data": data}, CONFIG, SETTINGS).problem for broker in told)
        assert own is not None
        assert "TOPSECRET" in own[1]
        assert foreign == (
            "ConfigInvalid",
            "ConfigMap n/c is not valid; its contents are not shown in another namespace",
        )


def test_the_smallest_retention_is_that_of_the_node() -> None:
    (setting,) = (each for each in LOG_SETTINGS if each.field == "retention_ms")
    assert setting.least == RETENTION_MS_MIN == 1000 * RETENTION_MIN_S
    assert from_data({"retention": "PT1S"})[0] == LogNeed("l", 4, RETENTION_MS_MIN)
