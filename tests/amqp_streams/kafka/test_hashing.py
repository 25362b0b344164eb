"""The partition of a key, compared with Kafka's own numbers and with librdkafka."""

import pytest
from confluent_kafka import Producer

from amqp_streams.kafka.hashing import murmur2, partition_of_key

# From Kafka's own tests: org.apache.kafka.common.utils.UtilsTest.testMurmur2.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", KNOWN)
def test_the_hash_is_that_of_java_clients(key: bytes) -> None:
    assert murmur2(key) == KNOWN[key] & 0xFFFFFFFF


def test_keys_go_where_another_client_of_kafka_puts_them(mock_kafka: str) -> None:
    keys = [bytes(range(65, 65 + length)) for length in range(1, 40)] + ["schlüssel".encode()]
    seen: dict[bytes | None, int | None] = {}
    producer = Producer({"bootstrap.servers": mock_kafka, "partitioner": "murmur2", "log_level": 0})
    for key in keys:
        producer.produce("t", b"", key, on_delivery=lambda _, got: seen.update({got.key(): got.partition()}))
    assert producer.flush(60) == 0
    count = len(producer.list_topics("t", timeout=60).topics["t"].partitions)
    assert count > 1
    assert seen == {key: partition_of_key(key, count) for key in keys}
