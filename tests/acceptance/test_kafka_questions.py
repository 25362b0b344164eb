"""What one node on Kafka knows of what other nodes did, and while Kafka is away."""

import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import proton
import proton.reactor
from proton.utils import BlockingConnection

from amqp_streams import names
from amqp_streams.client import Event
from amqp_streams.client.blocking import connect
from bench.products.kafka_cluster import Cluster
from examples.node import NodeProcess
from tests.acceptance.conftest import Cli
from tests.acceptance.kafka_nodes import LOG, PROGRAM, start
from tests.amqp_streams.decoded import mapping

__all__ = ["start"]
ATTACHES = 25
PATIENCE_S = 60


class Producing(threading.Thread):
    """Sends numbered events one by one. `began`, `accepted`: when, by number."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.began: list[float] = []
        self.accepted: list[float] = []
        self.last = threading.Event()

    def run(self) -> None:
        with connect(self._url) as client, client.producer(LOG) as producer:
            while not self.last.is_set():
                self.began.append(time.monotonic())
                producer.send(Event(len(self.accepted)))
                self.accepted.append(time.monotonic())

    def await_more(self, count: int) -> None:
        wanted, until = len(self.accepted) + count, time.monotonic() + PATIENCE_S
        while len(self.accepted) < wanted:
            assert time.monotonic() < until
            time.sleep(0.005)


def at_latest() -> proton.reactor.Filter:
    """The filter that begins at the end."""
    name = proton.symbol(names.FILTER_DELIVERY_ANNOTATIONS)
    conditions: dict[Any, Any] = {proton.symbol(names.OFFSET): proton.symbol("@latest")}
    return proton.reactor.Filter({name: proton.Described(name, conditions)})


def test_a_reader_of_what_is_new_begins_exactly_at_the_end(start: Callable[..., NodeProcess]) -> None:
    """Whatever was accepted by another node before the attach does not come; whatever was sent after the
    answer to the attach does.
    """
    first, second = start("first"), start("second")
    producing = Producing(first.url)
    producing.start()
    connection = BlockingConnection(second.url, timeout=PATIENCE_S)
    readers = []
    for number in range(ATTACHES):
        producing.await_more(1)
        asked = time.monotonic()
        receiver = connection.create_receiver(LOG, name=f"r{number}", credit=10_000, options=at_latest())
        readers.append((asked, time.monotonic(), receiver))
    producing.await_more(5)
    producing.last.set()
    producing.join(PATIENCE_S)
    for asked, answered, receiver in readers:
        before = {number for number, when in enumerate(producing.accepted) if when < asked}
        after = {number for number, when in enumerate(producing.began) if when > answered}
        assert before
        assert after
        got: set[object] = set()
        while not after <= got:
            got.add(receiver.receive(timeout=PATIENCE_S).body)
        assert not got & before
    connection.close()


def test_every_node_tells_what_all_nodes_have_accepted(start: Callable[..., NodeProcess]) -> None:
    first, second = start("first"), start("second")
    link = BlockingConnection(second.url, timeout=PATIENCE_S)
    info = link.create_receiver(f"{LOG}/$info", credit=0)
    with connect(first.url) as ours, connect(second.url) as theirs, ours.producer(LOG) as producer:
        for number in range(1, 16):
            producer.send(Event("x"))
            info.flow(1)
            told = mapping(info.receive(timeout=PATIENCE_S).body)["partitions"]
            assert sum(int(entry["latest-offset"] or -1) + 1 for entry in told) == number
            described = theirs.management.describe_log(LOG)
            latest = [each.latest_offset for each in described.partitions]
            assert sum(0 if offset is None else int(offset) + 1 for offset in latest) == number
            extents = theirs.extents([LOG])[LOG]
            assert sum(each.next for each in extents.partitions) == number
    link.close()


def test_a_log_that_one_node_deleted_does_not_exist_on_any_node(
    start: Callable[..., NodeProcess], cli: Cli
) -> None:
    first, second = start("first"), start("second")
    for number in range(3):
        name = f"gone{number}"
        cli(first, "log", "create", name, "--partitions", "2")
        cli(second, "send", name, given="x\n")
        cli(first, "log", "delete", name, "--yes")
        if number == 0:
            assert f"log '{name}' was deleted" in cli(second, "receive", name, status=1)
        elif number == 1:
            assert "no log named" in cli(second, "log", "update", name, "--retention", "2h", status=1)
        cli(second, "log", "create", name, "--partitions", "1")
        assert "has no event at all" in cli(first, "receive", name, "--format", "body")


def test_a_change_of_a_log_while_kafka_is_away_delays_nothing_else(
    kafka: Cluster, start: Callable[..., NodeProcess], cli: Cli
) -> None:
    node = start("node")
    for broker in kafka.brokers:
        broker.signal(signal.SIGSTOP)
    try:
        creating = subprocess.Popen(
            [PROGRAM, "log", "create", "late", "--partitions", "1"],
            env={**node.environment(), "AMQP_STREAMS_URL": node.url},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        with connect(node.url) as client:
            assert LOG in [each.name for each in client.management.list_logs()]
        # A node that waited for Kafka would have answered the creation first.
        assert creating.poll() is None
    finally:
        for broker in kafka.brokers:
            broker.signal(signal.SIGCONT)
    printed, _ = creating.communicate(timeout=90)
    assert creating.returncode == 0, printed
    cli(node, "send", "late", given="x\n")
