"""Two nodes on one Kafka cluster: what one accepts, the other serves, also when one of them is gone."""

import signal
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from amqp_streams.client import Event, RejectedError
from amqp_streams.client.blocking import connect
from bench.products.kafka_cluster import Cluster
from examples.node import NodeProcess
from tests.acceptance.conftest import Cli
from tests.acceptance.kafka_nodes import LOG, PROGRAM, start

__all__ = ["start"]


def test_events_pass_from_node_to_node_and_outlive_them(start: Callable[..., NodeProcess], cli: Cli) -> None:
    first, second = start("first"), start("second")
    follower = subprocess.Popen(
        [PROGRAM, "receive", LOG, "--follow", "--format", "body", "--from", "earliest", "--max", "60"],
        env={**second.environment(), "AMQP_STREAMS_URL": second.url},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        for begin in (0, 20, 40):
            cli(first, "send", LOG, "--key", "k", given="".join(f"{begin + n}\n" for n in range(20)))
        printed, _ = follower.communicate(timeout=60)
    finally:
        follower.kill()
    assert printed.split() == [str(number) for number in range(60)]
    first.kill()
    cli(second, "send", LOG, "--key", "k", given="60\n")
    second.kill()
    third = start("third")
    printed = cli(third, "receive", LOG, "--format", "body")
    assert printed.split() == [str(number) for number in range(61)]


def test_a_node_without_a_listener_for_nodes_refuses_what_needs_homes(
    start: Callable[..., NodeProcess], cli: Cli
) -> None:
    node = start("node")
    refused = "are not offered by this node, which has no node.listen"
    assert refused in cli(node, "receive", LOG, "--group", "g", status=1)
    assert refused in cli(node, "receive", LOG, "--durable", "d", status=1)
    assert "replicated 2/3" in cli(node, "info", LOG)


def test_a_topic_of_kafka_clients_is_a_log_in_both_directions(
    kafka: Cluster, start: Callable[..., NodeProcess], cli: Cli
) -> None:
    topic = f"orders.{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(60)
    theirs = Producer({"bootstrap.servers": kafka.servers, "partitioner": "murmur2_random", "log_level": 0})
    theirs.produce(topic, b"from kafka", b"kitchen", headers={"site": b"roof", "raw": b"\xff"})
    assert theirs.flush(60) == 0
    node = start("node", "--kafka-topics", topic)
    cli(node, "send", topic, "--key", "kitchen", "--content-type", "text/plain", given="from amqp\n")
    printed = cli(node, "receive", topic, "--format", "body")
    assert printed.splitlines() == ["from kafka", "from amqp"], "both are in the partition of the key"
    assert cli(node, "receive", topic, "--where", "site = 'roof'", "--format", "body") == "from kafka\n"
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    records = consumer.consume(2, 60)
    consumer.close()
    assert [(record.key(), record.value()) for record in records] == [
        (b"kitchen", b"from kafka"),
        (b"kitchen", b"from amqp"),
    ]
    assert "times of producers" in cli(node, "info", topic)
    with (
        connect(node.url) as client,
        client.producer(topic) as producer,
        pytest.raises(RejectedError, match="not one data section"),
    ):
        producer.send(Event({"a": 1}))
    assert "belongs to other programs" in cli(node, "log", "delete", topic, "--yes", status=1)


def test_a_log_made_on_one_node_is_on_all_nodes_at_once(start: Callable[..., NodeProcess], cli: Cli) -> None:
    first, second = start("first"), start("second")
    for number in range(5):
        cli(first, "log", "create", f"made{number}", "--partitions", "2")
        cli(second, "send", f"made{number}", given="x\n")
        assert cli(first, "receive", f"made{number}", "--format", "body") == "x\n"
    cli(second, "log", "update", "made0", "--retention", "2h")
    assert "kept 2h" in cli(second, "info", "made0")
    assert cli(second, "receive", "made0", "--from", "-1h", "--format", "body") == "x\n"
    assert cli(second, "receive", "made0", "--from", "-1ms", "--format", "body") == ""
    cli(first, "log", "delete", "made0", "--yes")
    assert "no log named 'made0'" in cli(first, "send", "made0", given="x\n", status=1)


def test_while_kafka_is_away_the_node_says_so_and_continues_when_it_is_back(
    kafka: Cluster, start: Callable[..., NodeProcess], cli: Cli
) -> None:
    node = start("node", "--admin-listen", "127.0.0.1:0")
    ready = f"http://{node.addresses['admin'][0]}/readyz"
    assert answer(ready) == (200, "ready")
    for broker in kafka.brokers:
        broker.signal(signal.SIGSTOP)
    try:
        await_answer(ready, 503, "Kafka does not answer")
        sender = subprocess.Popen(
            [PROGRAM, "send", LOG, "--timeout", "55"],
            env={**node.environment(), "AMQP_STREAMS_URL": node.url},
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert sender.stdin is not None
        sender.stdin.write("held\n")
        sender.stdin.close()
        sender.stdin = None
    finally:
        for broker in kafka.brokers:
            broker.signal(signal.SIGCONT)
    _, words = sender.communicate(timeout=90)
    assert "1 accepted" in words
    await_answer(ready, 200, "ready")
    assert cli(node, "receive", LOG, "--format", "body") == "held\n"


def answer(url: str) -> tuple[int, str]:
    """Status and body of an HTTP answer."""
    try:
        with urllib.request.urlopen(url, timeout=60) as got:
            return got.status, got.read().decode().strip()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode().strip()


def await_answer(url: str, status: int, words: str) -> None:
    """Wait until an HTTP answer has this status and these words."""
    until = time.monotonic() + 90
    while True:
        got = answer(url)
        if got[0] == status and words in got[1]:
            return
        assert time.monotonic() < until, got
        time.sleep(0.1)
