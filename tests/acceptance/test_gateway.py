"""The gateway as users run it: one command, resources from a file, events over HTTP, and kill -9 of the
gateway and of its node.
"""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from amqp_streams.client import EARLIEST
from amqp_streams.client.blocking import connect
from examples.gateway import GatewayProcess, Sender
from examples.subscriber import SubscriberServer

BROKER = "/broker/default/weather"
RESOURCES = """
apiVersion: eventing.knative.dev/v1
kind: Broker
metadata: {{name: weather, namespace: default}}
---
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata: {{name: warm, namespace: default}}
spec:
  broker: weather
  filter: {{attributes: {{type: warm}}}}
  subscriber: {{uri: "{live}"}}
  delivery:
    {{retry: {retry}, backoffPolicy: linear, backoffDelay: PT0.05S, deadLetterSink: {{uri: "{sink}"}}}}
"""

StartGateway = Callable[..., GatewayProcess]


@pytest.fixture
def start_gateway(tmp_path: Path) -> Iterator[StartGateway]:
    """Starts gateways; all end with 0 and without a traceback."""
    gateways: list[GatewayProcess] = []

    def start(*options: str, **more: Any) -> GatewayProcess:
        gateway = GatewayProcess(tmp_path / "gateway", *options, **more)
        gateways.append(gateway)
        gateway.start()
        return gateway

    try:
        yield start
        for gateway in gateways:
            if gateway.process is not None and gateway.process.poll() is None:
                assert gateway.stop() == 0, gateway.words
            assert "Traceback" not in gateway.words, gateway.words
    finally:
        for gateway in gateways:
            gateway.__exit__()


@pytest.fixture
def live() -> Iterator[SubscriberServer]:
    with SubscriberServer() as server:
        yield server


@pytest.fixture
def sink() -> Iterator[SubscriberServer]:
    with SubscriberServer() as server:
        yield server


def resources(live: SubscriberServer, sink: SubscriberServer, *, retry: int = 100) -> str:
    return RESOURCES.format(live=live.url, sink=sink.url, retry=retry)


def post(gateway: GatewayProcess, first: int, count: int) -> None:
    """Send events of the types warm and cold, alternating. All of them are accepted."""
    sender = Sender(gateway.http, BROKER)
    for number in range(first, first + count):
        type_ = "cold" if number % 2 else "warm"
        data = b'{ "number" :%d}' % number
        assert sender.send({"id": str(number), "source": "/test", "type": type_}, data) == 202, gateway.words
    sender.close()


def ids(server: SubscriberServer) -> set[str]:
    return {one.id for one in server.taken}


def warm(first: int, count: int) -> set[str]:
    return {str(number) for number in range(first, first + count) if number % 2 == 0}


@pytest.mark.usefixtures("real_commands")
def test_a_newcomer_has_events_delivered(
    start_gateway: StartGateway, live: SubscriberServer, sink: SubscriberServer, tmp_path: Path
) -> None:
    gateway = start_gateway()
    (tmp_path / "temps.yaml").write_text(resources(live, sink))
    gateway.cli("apply", "-f", str(tmp_path / "temps.yaml"))
    gateway.wait_ready()
    post(gateway, 0, 20)
    assert live.wait(lambda server: len(server.taken) >= 10), gateway.words
    assert ids(live) == warm(0, 20)
    assert {one.data for one in live.taken} == {b'{ "number" :%d}' % number for number in range(0, 20, 2)}
    assert {one.headers["prefer"] for one in live.taken} == {"reply"}
    assert not sink.requests
    assert "warm" in gateway.cli("get", "triggers")
    gateway.cli("delete", "-f", str(tmp_path / "temps.yaml"))
    assert "warm" not in gateway.cli("get", "triggers")


def test_amqp_clients_read_the_same_events(
    start_gateway: StartGateway, live: SubscriberServer, sink: SubscriberServer
) -> None:
    gateway = start_gateway()
    gateway.apply(resources(live, sink))
    post(gateway, 0, 10)
    with (
        connect(gateway.url) as client,
        client.consumer("broker.default.weather", start=EARLIEST) as consumer,
    ):
        read = [event for _ in range(10) for event in consumer.receive(max_events=1, timeout=60)]
    assert {event.body for event in read} == {b'{ "number" :%d}' % number for number in range(10)}
    assert {event.properties["cloudEvents_id"] for event in read} == {str(number) for number in range(10)}


def test_a_subscriber_that_fails_at_first_gets_everything(
    start_gateway: StartGateway, live: SubscriberServer, sink: SubscriberServer
) -> None:
    gateway = start_gateway()
    gateway.apply(resources(live, sink))
    live.decide = lambda _: 503
    post(gateway, 0, 20)
    assert live.wait(lambda server: len(server.requests) >= 5), gateway.words
    live.decide = lambda _: 202
    assert live.wait(
        lambda server: {one.id for one in server.requests if one.status == 202} >= warm(0, 20)
    ), gateway.words
    assert not sink.requests


def test_an_undeliverable_event_is_in_the_sink_with_its_reason(
    start_gateway: StartGateway, live: SubscriberServer, sink: SubscriberServer
) -> None:
    gateway = start_gateway()
    gateway.apply(resources(live, sink, retry=1))
    live.decide = lambda attributes: 500 if attributes["id"] == "4" else 202
    post(gateway, 0, 10)
    assert sink.wait(lambda server: len(server.requests) >= 1), gateway.words
    (letter,) = sink.requests
    assert (letter.id, letter.data) == ("4", b'{ "number" :4}')
    assert letter.attributes["knativeerrorcode"] == "500"
    assert letter.attributes["knativeerrordest"] == live.url
    assert letter.attributes["deadletterretry"] == "2"
    assert "prefer" not in letter.headers
    assert len([one for one in live.requests if one.id == "4"]) == 2


def test_nothing_is_lost_when_gateway_and_node_are_killed(
    start_gateway: StartGateway, live: SubscriberServer, sink: SubscriberServer
) -> None:
    gateway = start_gateway()
    gateway.apply(resources(live, sink))
    live.decide = lambda _: 503
    post(gateway, 0, 20)
    node = gateway.node_pid
    assert node is not None
    gateway.kill()
    os.kill(node, signal.SIGKILL)
    live.decide = lambda _: 202
    gateway.start()
    assert live.wait(
        lambda server: {one.id for one in server.requests if one.status == 202} >= warm(0, 20)
    ), gateway.words
    post(gateway, 20, 20)
    assert live.wait(
        lambda server: {one.id for one in server.requests if one.status == 202} >= warm(0, 40)
    ), gateway.words
    assert ids(live) == warm(0, 40)


def test_a_node_that_dies_comes_back_and_senders_get_errors_meanwhile(
    start_gateway: StartGateway, live: SubscriberServer, sink: SubscriberServer
) -> None:
    gateway = start_gateway()
    gateway.apply(resources(live, sink))
    node = gateway.node_pid
    assert node is not None
    os.kill(node, signal.SIGKILL)
    sender = Sender(gateway.http, BROKER)
    statuses = [
        sender.send({"id": f"again{number}", "source": "/test", "type": "warm"}, b"{}") for number in range(1)
    ]
    while statuses[-1] != 202:
        assert statuses[-1] in (429, 503), (
            statuses,
            gateway.process and gateway.process.poll(),
            gateway.words,
        )
        statuses.append(
            sender.send({"id": f"again{len(statuses)}", "source": "/test", "type": "warm"}, b"{}")
        )
    sender.close()
    wanted = f"again{len(statuses) - 1}"
    assert live.wait(lambda server: wanted in {one.id for one in server.requests}), gateway.words
