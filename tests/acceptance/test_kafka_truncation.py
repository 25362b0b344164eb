"""An unclean election on real brokers: accepted events are lost, and everybody who saw them learns it."""

import time
import urllib.request
from collections.abc import Callable
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from amqp_streams import names
from amqp_streams.client import EARLIEST, AfterOffset, Event, LinkError, LinkRefusedError
from amqp_streams.client.blocking import Client, Consumer, connect
from bench.brokers.disturbing import unclean_topic
from bench.products.kafka_cluster import Cluster
from examples.node import NodeProcess
from tests.acceptance.kafka_nodes import LOG, start
from tests.acceptance.test_kafka import await_answer

__all__ = ["start"]
LOSSY = "lossy"


def send(client: Client, log: str, *bodies: str, partition: int = 0) -> None:
    with client.producer(log, partition=partition) as producer:
        producer.post_batch([Event(body) for body in bodies])
        producer.flush(timeout=60)


def taken(consumer: Consumer, count: int) -> list[tuple[object, int | None]]:
    found: list[tuple[object, int | None]] = []
    while len(found) < count:
        found += [(event.body, event.offset) for event in consumer.receive(timeout=60)]
    return found


def began(servers: str, topic: str, partition: int) -> Producer:
    """A producer with a record in a transaction that has not ended."""
    settings = {"transactional.id": topic, "transaction.timeout.ms": 600_000, "log_level": 0}
    producer = Producer({"bootstrap.servers": servers, **settings})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"", partition=partition)
    producer.flush(60)
    return producer


def await_leader(admin: AdminClient, topic: str) -> None:
    while True:
        partitions = admin.list_topics(timeout=60).topics[topic].partitions.values()
        if all(each.leader >= 0 and each.error is None for each in partitions):
            return
        time.sleep(0.1)


def test_an_unclean_election_is_noticed_named_and_survived(
    kafka: Cluster, start: Callable[..., NodeProcess]
) -> None:
    """On another partition, an open transaction holds accepted events back: they are not lost."""
    leader, follower, _ = kafka.brokers
    admin = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    prefix = f"t{uuid4().hex[:12]}"
    topic = unclean_topic(f"{prefix}.log.{LOSSY}", partitions=1)
    admin.create_topics([topic])[topic.topic].result(60)
    node = start("node", "--kafka-weak", "--kafka-prefix", prefix, "--admin-listen", "127.0.0.1:0")
    safe_topic = f"{prefix}.log.{LOG}"
    # Two of its three leaders are stopped below.
    partitions = admin.list_topics(safe_topic, timeout=60).topics[safe_topic].partitions.values()
    moves = next(each.id for each in partitions if each.leader in {leader.number, follower.number})
    with (
        connect(node.url) as client,
        client.consumer(LOSSY, partition=0, start=EARLIEST) as ahead,
        client.consumer(LOSSY, partition=0, start=EARLIEST, credit=2) as slow,
        client.consumer(LOG, partition=moves, start=EARLIEST) as safe,
    ):
        send(client, LOSSY, *"abcd")
        send(client, LOG, *"abcd", partition=moves)
        assert taken(ahead, 4) == list(zip("abcd", range(4), strict=True))
        assert taken(safe, 4) == list(zip("abcd", range(4), strict=True))
        transaction = began(kafka.servers, safe_topic, moves)
        send(client, LOG, *"ef", partition=moves)
        follower.stop()
        send(client, LOSSY, *"efghij")
        assert taken(ahead, 6) == list(zip("efghij", range(4, 10), strict=True))
        leader.stop()
        follower.start(with_parent=True)
        await_leader(admin, topic.topic)
        send(client, LOSSY, *"EFG")
        with pytest.raises(LinkError, match="from offset 4 on were lost") as closed:
            taken(ahead, 1)
        assert closed.value.condition == names.RESOURCE_DELETED
        # It had not come to the lost events.
        assert taken(slow, 7) == list(zip("abcdEFG", range(7), strict=True))
        with (
            pytest.raises(LinkRefusedError, match="ends at 7: Kafka lost the events from 4 on"),
            client.consumer(LOSSY, partition=0, start=AfterOffset(8)),
        ):
            pass
        leader.start(with_parent=True)
        kafka.await_ready()
        # Its leader changed, and had every accepted event each time.
        transaction.abort_transaction(60)
        send(client, LOG, *"gh", partition=moves)
        assert [body for body, _ in taken(safe, 4)] == list("efgh")
        send(client, LOSSY, *"HIJK")
        assert taken(slow, 4) == list(zip("HIJK", range(7, 11), strict=True))
        with client.consumer(LOSSY, partition=0, start=AfterOffset(8)) as resumed:
            assert taken(resumed, 2) == [("J", 9), ("K", 10)]
    admin_url = f"http://{node.addresses['admin'][0]}"
    with urllib.request.urlopen(f"{admin_url}/metrics", timeout=60) as answer:
        assert "amqp_streams_kafka_events_lost_total 6.0" in answer.read().decode()
    await_answer(f"{admin_url}/readyz", 200, "ready")
    lines = [line for line in node.words.splitlines() if "events_lost" in line]
    assert len(lines) == 1
    assert all(part in lines[0] for part in (f"log={LOSSY}", "partition=0", "first=4", "last=9")), lines
