"""A whole gateway with its node, in this process and as a command."""

import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from amqp_streams.client import EARLIEST, connect
from event_formats.amqp_binding import decode
from knative_gateway import __version__, server
from knative_gateway.config import GatewaySettings
from knative_gateway.controller.controller import Controller
from knative_gateway.engine.event_log import AmqpEventLog
from knative_gateway.errors import ConfigError
from knative_gateway.running import opening
from knative_gateway.running.stopping import cancelled
from knative_gateway.server import Addresses, Gateway, serve
from tests.knative_gateway.asking import BINARY, BROKER

BROKERS = "/apis/eventing.knative.dev/v1/namespaces/default/brokers"
MANIFEST = b'{"apiVersion": "eventing.knative.dev/v1", "kind": "Broker", "metadata": {"name": "b"}}'


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    running = Gateway(GatewaySettings.model_validate({"listen": ["127.0.0.1:0"], "state_dir": tmp_path}))
    try:
        await running.start()
        yield running
    finally:
        await running.stop()


def request(
    gateway: Gateway, method: str, path: str, body: bytes = b"", headers: tuple[tuple[str, str], ...] = ()
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(gateway.addresses["http"][0], timeout=60)
    try:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


async def test_an_event_that_is_posted_is_read_over_amqp(gateway: Gateway) -> None:
    """One thing: a CloudEvent over HTTP is a message in a log, data byte for byte."""
    assert gateway.controller is not None
    assert gateway.node is not None
    status, words = await asyncio.to_thread(
        request, gateway, "POST", BROKERS, MANIFEST, (("content-type", "application/json"),)
    )
    assert status == 201, words
    async with asyncio.timeout(60):
        while (await asyncio.to_thread(request, gateway, "OPTIONS", BROKER.path))[0] != 200:
            await gateway.controller.settled()
    status, body = await asyncio.to_thread(request, gateway, "POST", BROKER.path, b' {"a": 1}', BINARY)
    assert (status, body) == (202, b"")
    async with connect(gateway.node.url) as client, client.consumer(BROKER.log, start=EARLIEST) as consumer:
        [event] = await consumer.receive(timeout=60)
        assert event.body == b' {"a": 1}'
        assert event.properties["cloudEvents_id"] == "1"
        assert decode(event.message).attributes["type"] == "t"


async def test_a_broker_takes_no_event_after_its_deletion_was_answered(gateway: Gateway) -> None:
    """The event would be deleted with the log, although it was accepted."""

    def sent() -> tuple[int, list[int]]:
        """The status of the deletion, and of events on connections that were open before."""
        host = gateway.addresses["http"][0]
        senders = [http.client.HTTPConnection(host, timeout=60) for _ in range(3)]
        for one in senders:
            one.connect()
        status, _ = request(gateway, "DELETE", f"{BROKERS}/b")
        for one in senders:
            one.request("POST", BROKER.path, b"x", dict(BINARY))
        answers = [one.getresponse().status for one in senders]
        for one in senders:
            one.close()
        return status, answers

    assert gateway.controller is not None
    as_json = (("content-type", "application/json"),)
    for _ in range(3):
        status, words = await asyncio.to_thread(request, gateway, "POST", BROKERS, MANIFEST, as_json)
        assert status == 201, words
        async with asyncio.timeout(60):
            while (await asyncio.to_thread(request, gateway, "OPTIONS", BROKER.path))[0] != 200:
                await gateway.controller.settled()
        assert await asyncio.to_thread(sent) == (200, [404] * 3)


async def test_it_is_ready_when_the_node_is_there(gateway: Gateway) -> None:
    assert await asyncio.to_thread(request, gateway, "GET", "/readyz") == (200, b"ready\n")
    status, metrics = await asyncio.to_thread(request, gateway, "GET", "/metrics")
    assert status == 200
    for name in (
        b"knative_gateway_ready 1.0",
        f'knative_gateway_build_info{{version="{__version__}"}} 1.0'.encode(),
        b"knative_gateway_event_log_connected 1.0",
        b"knative_gateway_embedded_starts_total 1.0",
        b"process_cpu_seconds_total",
    ):
        assert name in metrics
    assert gateway.node is not None
    assert gateway.node.pid is not None
    os.kill(gateway.node.pid, signal.SIGSTOP)
    os.kill(gateway.node.pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        for wanted in (503, 200):
            status = 0
            while status != wanted:
                status, _ = await asyncio.to_thread(request, gateway, "GET", "/readyz")


async def test_a_task_that_ended_makes_it_not_ready(gateway: Gateway) -> None:
    async def broken() -> None:
        raise KeyError

    task = gateway.tasks.keep("broken", broken)
    async with asyncio.timeout(60):
        while gateway.tasks.problem is None:  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0)
    status, words = await asyncio.to_thread(request, gateway, "GET", "/readyz")
    assert (status, words) == (503, b"not ready: the task broken ended and is being restarted: see the log\n")
    _, metrics = await asyncio.to_thread(request, gateway, "GET", "/metrics")
    assert b'knative_gateway_task_restarts_total{task="broken"}' in metrics
    assert b"knative_gateway_ready 0.0" in metrics
    task.cancel()
    await asyncio.wait({task})
    assert (await asyncio.to_thread(request, gateway, "GET", "/readyz"))[0] == 200


async def test_without_its_node_it_says_so_and_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503 for senders, not silence; and not 404, when Brokers take no events only because their logs are
    away.
    """
    monkeypatch.setattr(server, "CONNECT_S_MAX", 0.01)
    (tmp_path / "resources").mkdir()
    (tmp_path / "resources" / "b.json").write_bytes(MANIFEST)
    settings = {
        "listen": ["127.0.0.1:0"],
        "state_dir": tmp_path / "state",
        "amqp": "amqp://127.0.0.1:1",
        "limits": {"append": 0.01},
    }
    settings["resources"] = tmp_path / "resources"
    running = Gateway(GatewaySettings.model_validate(settings))
    await running.start()
    announced: list[Addresses] = []
    announcing = asyncio.create_task(running.announce(announced.append))
    connection = http.client.HTTPConnection(running.addresses["http"][0], timeout=60)
    await asyncio.to_thread(connection.request, "GET", "/readyz")
    answer = await asyncio.to_thread(connection.getresponse)
    assert (answer.status, answer.read()) == (503, b"not ready: the event log node is unreachable\n")
    assert not announced, "a ready file or sd_notify would be untrue"
    await asyncio.to_thread(connection.request, "POST", BROKER.path, b"{}", dict(BINARY))
    answer = await asyncio.to_thread(connection.getresponse)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert b"has not loaded all" in answer.read()
    connection.close()
    await cancelled(announcing)
    await running.stop()


async def test_it_serves_on_for_a_while_when_it_says_already_that_it_is_not_ready(tmp_path: Path) -> None:
    """A load balancer notices before the listener closes, and kept-alive connections end with an answer."""
    running = Gateway(
        GatewaySettings.model_validate(
            {"listen": ["127.0.0.1:0"], "state_dir": tmp_path, "shutdown_delay": 3600}
        )
    )
    await running.start()
    stopping = asyncio.create_task(running.stop())
    connection = http.client.HTTPConnection(running.addresses["http"][0], timeout=60)
    status = 200
    async with asyncio.timeout(60):
        while status == 200:
            status, words = await asyncio.to_thread(request, running, "GET", "/readyz")
    assert (status, words) == (503, b"not ready: starting or stopping\n")
    await asyncio.to_thread(connection.request, "GET", "/apis")
    answer = await asyncio.to_thread(connection.getresponse)
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    connection.close()
    await cancelled(stopping)
    await running.stop()


async def test_positions_that_are_not_kept_make_it_not_ready(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of the state database is full: deliveries continue, and would be repeated after a crash."""
    _, metrics = await asyncio.to_thread(request, gateway, "GET", "/metrics")
    # The flushes come twice a second, and later on a busy machine.
    assert re.search(rb"^knative_gateway_positions_kept_seconds \d+\.", metrics, re.MULTILINE)
    monkeypatch.setattr(server, "NOT_KEPT_S_MAX", -1.0)
    status, words = await asyncio.to_thread(request, gateway, "GET", "/readyz")
    assert status == 503
    assert re.search(rb"positions have not been stored for \d+ s: see the log", words)


async def test_an_address_that_is_taken_ends_the_start_and_the_node(tmp_path: Path, gateway: Gateway) -> None:
    settings = {"listen": gateway.addresses["http"], "state_dir": tmp_path / "other"}
    with pytest.raises(ConfigError, match="cannot listen on"):
        await serve(GatewaySettings.model_validate(settings), stop=asyncio.Event())


async def test_two_gateways_do_not_share_a_state_directory(tmp_path: Path, gateway: Gateway) -> None:
    settings = {"listen": ["127.0.0.1:0"], "state_dir": tmp_path}
    with pytest.raises(ConfigError, match="in use by another process"):
        await serve(GatewaySettings.model_validate(settings), stop=asyncio.Event())


async def test_resources_of_a_directory_are_there_when_it_is_ready(tmp_path: Path) -> None:
    """Brokers accept events at once."""
    (tmp_path / "resources").mkdir()
    (tmp_path / "resources" / "b.json").write_bytes(MANIFEST)
    running = Gateway(
        GatewaySettings.model_validate(
            {
                "listen": ["127.0.0.1:0"],
                "state_dir": tmp_path,
                "resources": tmp_path / "resources",
                "public_url": "http://events.test/",
            }
        )
    )
    try:
        await running.start()
        status, _ = await asyncio.to_thread(request, running, "POST", BROKER.path, b"{}", BINARY)
        assert status == 202
        _, body = await asyncio.to_thread(request, running, "GET", f"{BROKERS}/b")
        assert json.loads(body)["status"]["address"]["url"] == "http://events.test/broker/default/b"
    finally:
        await running.stop()


async def test_being_stopped_while_it_starts_is_an_orderly_end(tmp_path: Path) -> None:
    stop = asyncio.Event()
    stop.set()
    assert (
        await serve(
            GatewaySettings.model_validate({"listen": ["127.0.0.1:0"], "state_dir": tmp_path}), stop=stop
        )
        == 0
    )


@pytest.mark.usefixtures("real_commands")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_starts_everything_and_ends_with_0(tmp_path: Path, number: signal.Signals) -> None:
    """Exit status 0 after SIGTERM and SIGINT. The node has ended, and its data is there for the next one."""
    ready = tmp_path / "ready.json"
    command = [
        str(Path(sys.executable).parent / "knative-gateway"),
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--state-dir",
        str(tmp_path / "state"),
    ]
    with (tmp_path / "words").open("wb") as words:
        process = subprocess.Popen([*command, "--ready-file", str(ready)], stderr=words, stdout=words)
    try:
        deadline = time.monotonic() + 90
        while not ready.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        addresses = json.loads(ready.read_text())
        connection = http.client.HTTPConnection(addresses["http"][0], timeout=60)
        connection.request("GET", "/readyz")
        with connection.getresponse() as response:
            assert response.status == 200
        connection.close()
        process.send_signal(signal.SIGHUP)
        process.send_signal(number)
        assert process.wait(60) == 0, (tmp_path / "words").read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert not ready.exists()
    assert (tmp_path / "state" / "log").is_dir()
    told = (tmp_path / "words").read_text()
    assert "gateway_ready" in told
    assert "gateway_stopped" in told


async def test_a_broker_whose_log_the_node_refuses_does_not_delay_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "OPEN_S_MAX", 3600.0)
    ensure = AmqpEventLog.ensure

    async def odd(logs: AmqpEventLog, log: str, *, partitions: int, retention_ms: int | None) -> int:
        # Settings that the gateway accepts and the node does not.
        return await ensure(logs, log, partitions=0, retention_ms=retention_ms)

    monkeypatch.setattr(AmqpEventLog, "ensure", odd)
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "b.json").write_bytes(MANIFEST)
    settings = {"listen": ["127.0.0.1:0"], "state_dir": tmp_path / "state", "resources": tmp_path / "r"}
    running = Gateway(GatewaySettings.model_validate(settings))
    try:
        await running.start()
        async with asyncio.timeout(60):
            while running.missing() is not None:  # noqa: ASYNC110  many parts decide it
                await asyncio.sleep(0.01)
        _, words = await asyncio.to_thread(request, running, "GET", f"{BROKERS}/b")
        assert b"partitions" in words
        assert b"LogUnavailable" in words
    finally:
        await running.stop()


async def test_it_is_not_ready_before_all_brokers_take_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load balancer sends to others meanwhile."""
    monkeypatch.setattr(Controller, "lacking", "broker.default.b: its log is missing")
    running = Gateway(GatewaySettings.model_validate({"listen": ["127.0.0.1:0"], "state_dir": tmp_path}))
    try:
        await running.start()
        status, words = await asyncio.to_thread(request, running, "GET", "/readyz")
        expected = b"not all Brokers and Channels accept events yet: broker.default.b: its log is missing"
        assert (status, words) == (503, b"not ready: " + expected + b"\n")
        monkeypatch.setattr(Controller, "lacking", None)
        async with asyncio.timeout(60):
            while status != 200:
                status, _ = await asyncio.to_thread(request, running, "GET", "/readyz")
    finally:
        await running.stop()
