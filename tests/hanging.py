"""[io] Makes hanging transactions on real brokers: records in transactions that no coordinator knows.

No client of Kafka can make one. It speaks two requests of Kafka's protocol itself, InitProducerId (version 1)
and Produce (version 7) with a record batch (KIP-98), while brokers do not ask coordinators first (KIP-890).
"""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from amqp_streams.kafka.brokers.taking import Place
from bench.products.kafka_cluster import Cluster

_INIT_PRODUCER_ID: Final = 22
_PRODUCE: Final = 0
_TRANSACTIONAL: Final = 0x10
_VERIFIES: Final = "transaction.partition.verification.enable"
_POLYNOMIAL: Final = 0x82F63B78


@contextmanager
def unverified(cluster: Cluster) -> Iterator[None]:
    """Brokers take records of transactions that their coordinators do not know."""
    _verify(cluster, value=False)
    try:
        yield
    finally:
        _verify(cluster, value=True)


def _verify(cluster: Cluster, *, value: bool) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.servers, "log_level": 0})
    entry = ConfigEntry(_VERIFIES, str(value).lower(), incremental_operation=AlterConfigOpType.SET)
    for broker in cluster.brokers:
        resource = ConfigResource(ResourceType.BROKER, str(broker.number), incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(60)


def hang(cluster: Cluster, transactional_id: str, records: dict[Place, tuple[bytes | None, bytes]]) -> None:
    """Leave these records, a key and a value for each partition, in a transaction that hangs."""
    producer = _opened(cluster, transactional_id)
    admin = AdminClient({"bootstrap.servers": cluster.servers, "log_level": 0})
    for place, (key, value) in records.items():
        until = time.monotonic() + 60
        while (
            error := _produced(cluster, admin, transactional_id, place, _batch(*producer, key, value))
        ) != 0:
            # Brokers learn of a setting, and of a leader, one after the other.
            assert time.monotonic() < until, f"{place}: error {error} of Kafka"
            time.sleep(0.1)


def _opened(cluster: Cluster, transactional_id: str) -> tuple[int, int]:
    """The producer id and the epoch of a new producer."""
    body = _text(transactional_id) + struct.pack(">i", 10_000)
    until = time.monotonic() + 60
    while True:
        for broker in cluster.brokers:
            answer = _asked(broker.port, _INIT_PRODUCER_ID, 1, body)
            _, error, producer, epoch = struct.unpack(">ihqh", answer)
            if not error:
                return producer, epoch
        assert time.monotonic() < until, f"error {error} of Kafka"
        time.sleep(0.1)


def _produced(cluster: Cluster, admin: AdminClient, transactional_id: str, place: Place, batch: bytes) -> int:
    leader = admin.list_topics(place.topic, timeout=60).topics[place.topic].partitions[place.partition].leader
    port = next(broker.port for broker in cluster.brokers if broker.number == leader)
    partition = struct.pack(">ii", place.partition, len(batch)) + batch
    topic = _text(place.topic) + struct.pack(">i", 1) + partition
    body = _text(transactional_id) + struct.pack(">hii", -1, 30_000, 1) + topic
    answer = _asked(port, _PRODUCE, 7, body)
    # One topic and its name, one partition and its number.
    (error,) = struct.unpack_from(">h", answer, 4 + 2 + len(place.topic) + 4 + 4)
    return int(error)


def _asked(port: int, request: int, version: int, body: bytes) -> bytes:
    message = struct.pack(">hhi", request, version, 1) + _text("hanging") + body
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(struct.pack(">i", len(message)) + message)
        with connection.makefile("rb") as answer:
            (size,) = struct.unpack(">i", answer.read(4))
            return answer.read(size)[4:]


def _batch(producer: int, epoch: int, key: bytes | None, value: bytes) -> bytes:
    """A record batch with one record of a transaction."""
    record = b"\0\0\0" + _sized(key) + _sized(value) + _varint(0)
    now = int(time.time() * 1000)
    checked = struct.pack(">hiqqqhii", _TRANSACTIONAL, 0, now, now, producer, epoch, 0, 1)
    checked += _varint(len(record)) + record
    rest = struct.pack(">ibI", 0, 2, _crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(rest)) + rest


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _sized(value: bytes | None) -> bytes:
    return _varint(-1) if value is None else _varint(len(value)) + value


def _varint(number: int) -> bytes:
    zigzag, found = (number << 1) ^ (number >> 63), bytearray()
    while zigzag > 0x7F:
        found.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    found.append(zigzag)
    return bytes(found)


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
