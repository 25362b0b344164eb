"""`make cluster`: everything runs, works together, and is stopped in the end."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqp_streams.client import EARLIEST, ConnectError, Event
from amqp_streams.client.blocking import connect
from bench.products import kafka_cluster, postgresql
from bench.products.cluster import running
from bench.products.kafka_cluster import Cluster
from examples.gateway import Sender
from examples.subscriber import SubscriberServer

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(bool(kafka_cluster.why_not()), reason=kafka_cluster.why_not() or "Kafka runs here"),
]
RESOURCES = """
apiVersion: eventing.knative.dev/v1
kind: Broker
metadata: {{name: weather, namespace: default}}
---
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata: {{name: all, namespace: default}}
spec:
  broker: weather
  subscriber: {{uri: "{url}"}}
"""
SECONDS_MAX = 120.0


def test_nodes_share_a_group_and_gateways_a_broker(tmp_path: Path) -> None:
    with SubscriberServer() as subscriber, running(tmp_path / "cluster", nodes=2) as cluster:
        first, second = cluster.nodes
        with connect(first.url) as one, connect(second.url) as two:
            one.management.create_log("temps", partitions=1)
            with one.producer("temps") as producer:
                for number in range(20):
                    producer.send(Event(b"%d" % number))
            with two.consumer("temps", group="readers", start=EARLIEST) as consumer:
                bodies = set[object]()
                while len(bodies) < 20:
                    bodies |= {event.body for event in consumer.receive(timeout=SECONDS_MAX)}
        assert bodies == {b"%d" % number for number in range(20)}
        assert len(cluster.gateways) == (2 if postgresql.binaries() is not None else 1)
        cluster.gateways[0].apply(RESOURCES.format(url=subscriber.url))
        sender = Sender(cluster.gateways[-1].http, "/broker/default/weather")
        deadline = time.monotonic() + SECONDS_MAX
        while (status := sender.send({"id": "1", "source": "/s", "type": "t"}, b"{}")) != 202:
            assert time.monotonic() < deadline, status
        assert subscriber.wait(lambda server: bool(server.requests), SECONDS_MAX)
        sender.close()
        for words in (first.url, second.url, cluster.brokers, cluster.gateways[0].base_url):
            assert words in cluster.words()
        for node in cluster.nodes:
            assert f"{node.url}, process {node.pid}\n" in cluster.words()
            assert f"admin http://{node.addresses['admin'][0]}, console http://" in cluster.words()
        second.kill()
        ready = second.folder / "ready.json"
        ready.unlink()
        again = subprocess.Popen(["sh", second.folder / "start.sh"], stderr=subprocess.DEVNULL)
        try:
            while not ready.exists():
                assert again.poll() is None
                time.sleep(0.01)
            with connect(second.url) as two:
                assert two.info("temps").partitions
        finally:
            again.terminate()
            again.wait(SECONDS_MAX)


def test_a_folder_with_other_things_and_one_with_a_cluster_that_runs_stay(
    tmp_path: Path, kafka: Cluster
) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(RuntimeError, match="not the folder of a cluster"), running(tmp_path):
        pass
    assert (tmp_path / "mine").read_text() == "x"
    with pytest.raises(RuntimeError, match="a cluster runs"), running(_around(kafka, tmp_path)):
        pass
    assert all(broker.pid for broker in kafka.brokers)


def _around(kafka: Cluster, tmp_path: Path) -> Path:
    folder = tmp_path / "cluster"
    folder.mkdir()
    (folder / "kafka").symlink_to(kafka.folder)
    return folder


@pytest.fixture
def command(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    words = [sys.executable, "-u", "-m", "bench.products.cluster", "--folder", str(tmp_path / "cluster")]
    with subprocess.Popen(
        [*words, "--nodes", "1", "--gateways", "1"], stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def test_ctrl_c_stops_all_of_it(command: "subprocess.Popen[str]", tmp_path: Path) -> None:
    assert command.stdout is not None
    for line in command.stdout:
        if line.startswith("Ctrl-C"):
            break
    ready = json.loads((tmp_path / "cluster" / "node-1" / "ready.json").read_text())
    command.send_signal(signal.SIGINT)
    assert command.wait(SECONDS_MAX) == 0
    assert not [each for each in kafka_cluster.found(tmp_path / "cluster" / "kafka").brokers if each.pid]
    with pytest.raises(ConnectError, match="refused"), connect(f"amqp://{ready['amqp'][0]}", timeout=1):
        pass
