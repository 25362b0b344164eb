"""The settings of topics: which ones keep the promise, and what logs and topics have of each other."""

import time
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, NewTopic

from amqp_streams.config import LogSettings
from amqp_streams.kafka import settings
from amqp_streams.kafka.settings import (
    RECORD_OVERHEAD,
    TopicSettings,
    after_copy,
    configuration_of,
    log_settings,
    refusal,
    times_refusal,
    topic_settings,
    weaknesses,
    while_copied,
)
from bench.products.kafka_cluster import Cluster

MADE = configuration_of(LogSettings(), message_bytes=16 << 20)
STRONG = topic_settings([3, 3], MADE)


def test_the_topics_that_nodes_make_are_not_weak() -> None:
    assert weaknesses(STRONG) == ()
    assert refusal("t", STRONG) is None
    assert (STRONG.promise, STRONG.append_times, STRONG.compacted) == ("2/3", True, False)
    assert STRONG.largest_message == 16 << 20


@pytest.mark.parametrize(
    ("weak", "reason"),
    [
        (replace(STRONG, replicas=2), "it has 2 replicas (at least 3 are needed)"),
        (replace(STRONG, in_sync_min=1), "min.insync.replicas is 1 (at least 2 is needed)"),
        (replace(STRONG, unclean=True), "unclean.leader.election.enable is true"),
    ],
)
def test_a_topic_that_may_lose_accepted_events_is_refused_with_the_reason(
    weak: TopicSettings, reason: str
) -> None:
    assert weaknesses(weak) == (reason,)
    assert refusal("t", weak) == (
        f"topic 't' may lose accepted events when a broker is lost: {reason}. Change the topic, or allow weak"
        " topics with --kafka-weak"
    )


def test_all_reasons_are_named_together() -> None:
    weak = replace(STRONG, replicas=1, in_sync_min=1, unclean=True)
    assert len(weaknesses(weak)) == 3
    assert weak.promise == "1/1"


def test_the_partition_with_the_fewest_replicas_counts() -> None:
    assert topic_settings([3, 2, 3], MADE).replicas == 2


def test_more_in_sync_than_there_are_replicas_promises_what_there_is() -> None:
    assert replace(STRONG, replicas=1).promise == "1/1"


@pytest.mark.parametrize(
    "wanted",
    [
        LogSettings(),
        LogSettings(
            retention_ms=3_600_000, retention_bytes=5 << 20, segment_bytes=2 << 20, segment_ms=60_000
        ),
        LogSettings(retention_ms=1000, segment_bytes=(1 << 31) - 1),
    ],
)
def test_the_settings_of_a_log_come_back_from_its_topic(wanted: LogSettings) -> None:
    assert log_settings(topic_settings([3], configuration_of(wanted, message_bytes=1 << 20))) == wanted


def test_segments_are_as_small_as_kafka_allows() -> None:
    small = LogSettings(segment_bytes=64 << 10, segment_ms=1000)
    found = log_settings(topic_settings([3], configuration_of(small, message_bytes=1 << 20)))
    assert (found.segment_bytes, found.segment_ms) == (
        settings.SEGMENT_BYTES_MIN,
        settings.SEGMENT_MS_MIN,
    )


def test_a_topic_of_others_has_the_nearest_settings_that_a_log_can_have() -> None:
    foreign = MADE | {"retention.ms": "1", "retention.bytes": "1", "segment.ms": str((1 << 63) - 1)}
    found = log_settings(topic_settings([1] * 7, foreign))
    assert found.partitions == 7
    assert found.retention_ms == 1000
    assert found.retention_bytes == 1 << 20


def test_a_topic_has_the_times_of_its_producer_and_no_retention_while_a_log_is_copied() -> None:
    usual = configuration_of(LogSettings(retention_ms=1000, retention_bytes=1 << 20), message_bytes=1 << 20)
    copied = topic_settings([3], while_copied(usual))
    assert (copied.append_times, copied.retention_ms, copied.retention_bytes) == (False, None, None)
    assert times_refusal("t", copied) is not None
    ended = topic_settings([3], while_copied(usual) | after_copy(usual))
    assert ended == topic_settings([3], usual)
    assert times_refusal("t", ended) is None


def test_a_topic_with_more_partitions_than_a_log_can_have_is_not_a_log() -> None:
    with pytest.raises(ValueError, match="has 1025 partitions; a log has at most 1024"):
        log_settings(topic_settings([3] * 1025, MADE))


def test_a_configuration_without_a_setting_is_not_guessed() -> None:
    with pytest.raises(KeyError):
        topic_settings([3], {name: value for name, value in MADE.items() if name != "min.insync.replicas"})


def _described(client: AdminClient, resource: ConfigResource) -> dict[str, ConfigEntry]:
    """The configuration of a new topic. A broker may not know it for a moment."""
    for _ in range(100):
        try:
            return client.describe_configs([resource])[resource].result(60)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            time.sleep(0.1)
    pytest.fail(f"no broker knows {resource} after 10 s")


def test_kafka_takes_the_configuration_and_shows_the_same(kafka: Cluster) -> None:
    """Its names, values and bounds are those of the brokers."""
    client = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    small = configuration_of(LogSettings(segment_bytes=64 << 10, segment_ms=1000), message_bytes=16 << 20)
    client.create_topics([NewTopic("settings-test", 2, 3, config=small)])["settings-test"].result(60)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "settings-test")
    shown = _described(client, resource)
    found = topic_settings([3, 3], {name: str(entry.value) for name, entry in shown.items()})
    assert found == topic_settings([3, 3], small)


def test_a_message_of_the_largest_size_fits_with_everything_around_it(kafka: Cluster) -> None:
    client = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    limits = configuration_of(LogSettings(), message_bytes=2 << 20)
    client.create_topics([NewTopic("largest-test", 1, 3, config=limits)])["largest-test"].result(60)
    errors: list[object] = []
    sender = {"bootstrap.servers": kafka.servers, "message.max.bytes": (2 << 20) + RECORD_OVERHEAD}
    producer = Producer({**sender, "enable.idempotence": True, "log_level": 0})
    producer.produce("largest-test", b"x" * (2 << 20), b"k" * 255, on_delivery=lambda e, _: errors.append(e))
    assert producer.flush(60) == 0
    assert errors == [None]
