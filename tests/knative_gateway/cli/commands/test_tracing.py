"""`trace` against a running gateway with its log node: real deliveries, failures and dead letters."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from examples.gateway import GatewayProcess, Sender
from examples.subscriber import SubscriberServer
from knative_gateway.cli import main
from tests.weather import RESOURCES

CHANNEL = """---
apiVersion: messaging.knative.dev/v1
kind: InMemoryChannel
metadata: {name: orders, namespace: default}
"""
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with (
        SubscriberServer() as good,
        SubscriberServer(decide=lambda _: 503) as bad,
        GatewayProcess(tmp_path_factory.mktemp("gateway")) as started,
    ):
        started.apply(RESOURCES.format(good=good.url, bad=bad.url, dead="dead") + CHANNEL)
        sender = Sender(started.http, "/broker/default/weather")
        for number, celsius in enumerate(("20", "99")):
            event = {"type": "measured", "source": "/kitchen", "id": f"e{number}", "celsius": celsius}
            assert sender.send(event, b'{"a": 1}') == 202
        sender.close()
        assert good.wait(lambda server: len(server.requests) == 2)
        assert bad.wait(lambda server: len(server.requests) == 2)
        yield started


@pytest.fixture
def run(gateway: GatewayProcess) -> Run:
    def asked(*words: str, status: int = 0) -> Result:
        environment = {"KNATIVE_GATEWAY_URL": gateway.base_url, "KNATIVE_GATEWAY_TOKEN": None}
        result = CliRunner(env=environment).invoke(main, ["trace", *words])
        assert result.exit_code == status, result.output
        return result

    return asked


def traced(run: Run, *words: str) -> Any:
    """The path of an event, once its dead letter is stored."""
    while True:
        answer = json.loads(run(*words, "--json").stdout)
        states = [row["state"] for row in answer["subscribers"] if row["matches"]]
        # An event has been completed for a moment before its history says how.
        if states and not {"in flight", "retrying", "waiting", "completed"} & set(states):
            return answer


def test_the_events_are_listed_and_one_is_found_by_its_id(run: Run) -> None:
    lines = run("weather").stdout.splitlines()
    assert sorted(line.split("  ")[-1] for line in lines) == ["e0", "e1"]
    assert run("weather", "--events", "1").stdout.count("\n") == 1
    assert "no events" in run("inmemorychannel/orders").stdout
    assert run("weather", "--until", "2020-01-01").stdout == "no events\n"
    assert "no such event: 2 events were looked at" in run("weather", "--id", "e9", status=1).stdout


def test_the_path_of_an_event_is_told_with_its_attempts_and_its_dead_letter(run: Run) -> None:
    answer = traced(run, "weather", "--id", "e1")
    rows = {row["name"]: row for row in answer["subscribers"]}
    assert rows["measured"]["state"] == "delivered"
    assert rows["alarms"]["state"] == "dead-lettered"
    letter = rows["alarms"]["dead_letter"]
    assert (letter["kind"], letter["name"]) == ("Broker", "dead")
    shown = run("broker/weather", f"{answer['event']['partition']}:{answer['event']['offset']}").stdout
    assert "2 of 2 get it" in shown
    assert "attempt 2  503  status 503" in shown
    assert f"at broker/dead {letter['partition']}:{letter['offset']}" in shown
    assert '{"a": 1}' in shown
    back = run("broker/dead", f"{letter['partition']}:{letter['offset']}").stdout
    assert "this is a dead letter of broker/weather" in back
    assert "No subscriber gets it." in back


def test_those_that_do_not_get_it_are_shown_on_request(run: Run) -> None:
    assert "not delivered to 1: --all shows why" in run("weather", "--id", "e0").stdout
    everyone = run("weather", "--id", "e0", "--all").stdout
    assert "trigger/alarms  does not get it: filters[0].cesql is false" in everyone


def test_filters_that_are_too_long_for_one_request_are_asked_for_again(
    run: Run, gateway: GatewayProcess
) -> None:
    broker = {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Broker",
        "metadata": {"name": "long", "namespace": "default"},
    }
    triggers = [
        {
            **broker,
            "kind": "Trigger",
            "metadata": {"name": f"t{number}", "namespace": "default"},
            "spec": {
                "broker": "long",
                "filters": [{"cesql": f"type = '{number}{'x' * 8000}'"}],
                "subscriber": {"uri": "http://127.0.0.1:9/"},
            },
        }
        for number in range(10)
    ]
    gateway.apply("\n---\n".join(map(json.dumps, [broker, *triggers])))
    sender = Sender(gateway.http, "/broker/default/long")
    assert sender.send({"type": "measured", "source": "/kitchen", "id": "e"}, b"") == 202
    sender.close()
    everyone = run("long", "--id", "e", "--all").stdout
    assert everyone.count("does not get it: filters[0].cesql is false") == 10
    assert "not evaluated" not in everyone


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("weather", "x"), 2, "'x' is not PARTITION:OFFSET"),
        (("weather", "0:999"), 1, "does not have the offset 999 yet"),
        (("weather", "99:0"), 1, "does not have partition 99"),
        (("weathr",), 1, "did you mean 'weather'"),
        (("trigger/measured",), 2, "is not broker/NAME or channel/NAME or inmemorychannel/NAME"),
        (("weather", "--until", "earliest"), 2, "is not a time"),
    ],
)
def test_a_mistake_is_named(run: Run, words: tuple[str, ...], status: int, message: str) -> None:
    assert message in run(*words, status=status).stderr


def test_a_redrive_is_waited_for_and_cancelled(gateway: GatewayProcess) -> None:
    """Of the Trigger with the dead letter above: its subscriber still fails."""
    environment = {"KNATIVE_GATEWAY_URL": gateway.base_url, "KNATIVE_GATEWAY_TOKEN": None}

    def redrive(*words: str, status: int = 0) -> Result:
        result = CliRunner(env=environment).invoke(main, ["redrive", "trigger/alarms", *words])
        assert result.exit_code == status, result.output
        return result

    waited = redrive("--wait", "--json")
    assert json.loads(waited.stdout) == {"redriven": "trigger/alarms", "events": 1, "cancelled": 0}
    assert "0 events are not delivered again" in redrive("--cancel").stdout
    assert "does not go with" in redrive("--cancel", "--wait", status=2).stderr
