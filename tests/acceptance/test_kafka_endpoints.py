"""Clients of several nodes on one Kafka cluster: what they send and read while nodes stop and come back."""

import json
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from amqp_streams.client import EARLIEST, Event, RetryPolicy
from amqp_streams.client.blocking import Client, Consumer, connect
from bench.products.kafka_cluster import Cluster
from examples.gateway import GatewayProcess, Sender
from examples.node import NodeProcess
from examples.subscriber import SubscriberServer
from tests.acceptance.conftest import Cli
from tests.acceptance.kafka_nodes import LOG, start
from tests.acceptance.test_gateway import BROKER, resources

__all__ = ["start"]
Start = Callable[..., NodeProcess]
QUICK = RetryPolicy(first_ms=10, wait_max_ms=200)


def connected(client: Client, nodes: list[NodeProcess]) -> NodeProcess:
    """The node that the client uses."""
    return next(node for node in nodes if node.url == client.address)


def taken(consumer: Consumer, until: int) -> list[tuple[object, int]]:
    """The next events up to that with this body: bodies and offsets."""
    found: list[tuple[object, int]] = []
    while not found or found[-1][0] != until:
        found += [(event.body, event.offset or 0) for event in consumer.receive(timeout=60)]
    return found


def has_more(accepted: set[str], wanted: int, _server: SubscriberServer) -> bool:
    return len(accepted) >= wanted


def not_ready(gateway: GatewayProcess) -> str:
    """Why the gateway is not ready, as soon as it is not."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            gateway.get("/readyz")
        except json.JSONDecodeError:  # "ready"
            time.sleep(0.1)
        except RuntimeError as error:
            return str(error)
    pytest.fail(gateway.words)


def test_consumers_and_producers_continue_at_another_node(kafka: Cluster, start: Start) -> None:
    nodes = [start("first"), start("second")]
    with (
        connect(",".join(node.url for node in nodes), retry=QUICK) as client,
        client.producer(LOG, partition=0) as producer,
        client.consumer(LOG, partition=0, start=EARLIEST) as consumer,
    ):
        read: list[tuple[object, int]] = []
        for begin, end in ((0, NodeProcess.stop), (100, NodeProcess.kill)):
            producer.post_batch([Event(number) for number in range(begin, begin + 50)])
            producer.flush()
            node = connected(client, nodes)
            producer.post_batch([Event(number) for number in range(begin + 50, begin + 100)])
            end(node)
            producer.flush(timeout=60)
            read += taken(consumer, begin + 99)
            assert connected(client, nodes) is not node
            node.start()
    offsets = [offset for _, offset in read]
    assert all(after == before + 1 for before, after in pairwise(offsets)), "each offset was read once"
    # Events without an outcome are sent again, and may be stored twice: nothing else is.
    assert list(dict.fromkeys(body for body, _ in read)) == list(range(200))


def test_commands_take_a_list_of_nodes(kafka: Cluster, start: Start, cli: Cli) -> None:
    node, gone = start("node"), start("gone")
    gone.kill()
    for urls in (f"{gone.url},{node.url}", f"{node.url},{gone.url.removeprefix('amqp://')}"):
        cli(node, "send", LOG, "--key", "k", given="x\n", url=urls)
    assert cli(node, "receive", LOG, "--format", "body", url=f"{gone.url},{node.url}") == "x\nx\n"
    node.kill()
    failed = cli(node, "info", LOG, url=f"{gone.url},{node.url}", status=1)
    assert gone.url in failed
    assert node.url in failed


def test_a_gateway_continues_when_its_node_is_killed(kafka: Cluster, start: Start, tmp_path: Path) -> None:
    nodes = [start("first"), start("second")]
    urls = ",".join(node.url for node in nodes)
    with (
        SubscriberServer() as live,
        SubscriberServer() as sink,
        GatewayProcess(tmp_path / "gateway", "--amqp", urls) as gateway,
    ):
        gateway.apply(resources(live, sink))
        accepted: set[str] = set()
        enough = threading.Event()

        def send() -> None:
            sender, number = Sender(gateway.http, BROKER), 0
            while not enough.is_set():
                number += 1
                if sender.send({"id": str(number), "source": "/t", "type": "warm"}, b"{}") == 202:
                    accepted.add(str(number))
            sender.close()

        sending = threading.Thread(target=send)
        sending.start()
        try:
            for node in nodes:
                wanted = len(accepted) + 20
                assert live.wait(partial(has_more, accepted, wanted), 60), gateway.words
                node.kill()
                node.start()
        finally:
            enough.set()
            sending.join()
        assert live.wait(lambda server: {one.id for one in server.taken} >= accepted, 60), gateway.words
        assert not sink.requests
        assert gateway.stop() == 0
        assert "Traceback" not in gateway.words


@pytest.mark.parametrize("workers", [1, 2])
def test_a_gateway_starts_although_a_node_of_its_list_is_away(
    kafka: Cluster,
    start: Start,
    tmp_path: Path,
    workers: int,
) -> None:
    node, gone = start("node"), start("gone")
    gone.kill()
    options = ["--amqp", f"{gone.url},{node.url}", *(["--workers", str(workers)] if workers > 1 else [])]
    with (
        SubscriberServer() as live,
        SubscriberServer() as sink,
        GatewayProcess(tmp_path / "gateway", *options) as gateway,
    ):
        gateway.apply(resources(live, sink))
        sender = Sender(gateway.http, BROKER)
        assert sender.send({"id": "1", "source": "/t", "type": "warm"}, b"{}") == 202, gateway.words
        sender.close()
        if workers > 1:
            # They share deliveries in a consumer group, which nodes on Kafka do not have.
            assert "no event is delivered. Run one gateway process" in not_ready(gateway)
            assert "shares_refused" in gateway.words
            assert not live.taken
        assert gateway.stop() == 0
