"""Kafka for tests: three brokers as processes, and librdkafka's mock brokers."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.products import kafka_cluster, places
from bench.products.kafka_cluster import Broker, Cluster

QUIET = {"log_level": 0}


def sent_and_read(servers: str, topic: str, values: list[bytes]) -> list[bytes | None]:
    """Send values with all acknowledgements and read them back."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True, **QUIET})
    failed: list[Any] = []
    messages: list[Any] = [{"value": value} for value in values]
    assert producer.produce_batch(
        topic, messages, partition=0, on_delivery=lambda error, _: failed.append(error) if error else None
    ) == len(values)
    assert producer.flush(60) == 0
    assert failed == []
    reader = Consumer(
        {"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False, **QUIET}
    )
    reader.assign([TopicPartition(topic, 0, 0)])
    found = [message.value() for message in reader.consume(len(values), 60)]
    reader.close()
    return found


def test_a_cluster_serves_without_one_of_its_brokers(kafka: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.servers, **QUIET})
    for made in admin.create_topics([NewTopic("cluster-test", 1, 3)]).values():
        made.result(60)
    assert sent_and_read(kafka.servers, "cluster-test", [b"a", b"b"]) == [b"a", b"b"]
    last = kafka.brokers[-1]
    last.stop()
    assert last.pid is None
    kafka.await_ready(2)
    assert sent_and_read(kafka.servers, "cluster-test", [b"c"]) == [b"a"]
    last.start(with_parent=True)
    kafka.await_ready()


def test_a_cluster_is_found_again_in_its_folder(kafka: Cluster) -> None:
    assert kafka_cluster.found(kafka.folder) == kafka
    for broker in kafka.brokers:
        broker.signal(signal.SIGCONT)
        assert broker.log.exists()


def test_only_a_process_with_the_settings_of_the_broker_is_the_broker(tmp_path: Path) -> None:
    """A pid file is older than the process that has its pid: that process is never stopped."""
    (tmp_path / "1.pid").write_text(f"{os.getpid()}\n")
    broker = Broker(1, 9092, tmp_path)
    assert broker.pid is None
    broker.stop()
    assert Broker(2, 9092, tmp_path).pid is None


def test_the_reason_why_brokers_cannot_run_names_the_command_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "needs Java" in kafka_cluster.why_not()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "peers"))
    assert kafka_cluster.why_not() == "not installed: make kafka"


def test_each_topic_of_a_cluster_of_three_survives_the_loss_of_one_broker(tmp_path: Path) -> None:
    made = kafka_cluster.broker_settings(tmp_path, 2, 1, 2, voters="1@a:1", count=3)
    assert made["node.id"] == "2"
    assert {made[name] for name in made if name.endswith("replication.factor")} == {"3"}
    assert {made[name] for name in made if name.endswith(("min.isr", "min.insync.replicas"))} == {"2"}


def test_mock_brokers_take_and_return_records_without_java(mock_kafka: str) -> None:
    assert mock_kafka.count(",") == 2
    assert sent_and_read(mock_kafka, "mock", [b"a", b"b"]) == [b"a", b"b"]
