"""[io] The state topic: its settings, and how a node that starts finds or creates it.

Each bucket is a partition of it. The topic is compacted: Kafka keeps at least the last record of each key.
"""

import logging
from typing import Final

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers.administration import Administration, FoundTopic
from amqp_streams.kafka.settings import IN_SYNC_MIN, TopicSettings, weaknesses
from amqp_streams.kafka.sharing.producing import RECORD_BYTES_MAX

SEGMENT_BYTES: Final = 16 << 20
"""Kafka compacts segments that are not the last one. The default, 1 GiB, would be read at each start."""
SEGMENT_MS: Final = 600_000
"""A segment with records is closed after this time as well."""
REMOVED_MS: Final = 86_400_000
"""How long the record that removes a key is kept, so that each reader gets it."""

STATES: Final = "groups and cursors"
"""What the state topic has."""

log = logging.getLogger("amqp_streams.kafka")


def state_configuration(replicas: int) -> dict[str, str]:
    """Kafka's configuration of a state topic with so many replicas."""
    return {
        "cleanup.policy": "compact",
        "min.insync.replicas": str(min(IN_SYNC_MIN, replicas)),
        "unclean.leader.election.enable": "false",
        "max.message.bytes": str(RECORD_BYTES_MAX),
        "segment.bytes": str(SEGMENT_BYTES),
        "segment.ms": str(SEGMENT_MS),
        "min.cleanable.dirty.ratio": "0.1",
        "delete.retention.ms": str(REMOVED_MS),
        "message.timestamp.type": "LogAppendTime",
    }


def problems(
    topic: str, settings: TopicSettings, buckets: int, *, weak: bool, what: str = STATES
) -> tuple[str, ...]:
    """Why this topic cannot have the states of `what`; empty if it can."""
    found = []
    if settings.partitions != buckets:
        found.append(f"it has {settings.partitions} partitions, and must have {buckets}")
    if not settings.compacted or settings.removes:
        found.append("its cleanup.policy is not compact: Kafka would remove states that are in use")
    if settings.message_bytes < RECORD_BYTES_MAX:
        found.append(f"its max.message.bytes is {settings.message_bytes} (at least {RECORD_BYTES_MAX})")
    if not weak:
        found += weaknesses(settings)
    return tuple(f"topic {topic!r} cannot have the states of {what}: {each}" for each in found)


def find_or_create(
    administration: Administration,
    topic: str,
    buckets: int,
    *,
    replicas: int,
    weak: bool,
    what: str = STATES,
) -> FoundTopic:
    """The state topic of `what`. Waits for Kafka.

    Raises:
        StorageError: Kafka does not answer or refuses to create it, or the topic has other settings.
    """
    found = administration.describe([topic]).get(topic)
    if found is None:
        try:
            found = administration.create(topic, buckets, replicas, state_configuration(replicas))
        except ValueError:
            # Another node was faster. The broker that answers may be behind.
            found = administration.await_topic(topic)
        else:
            log.info("kafka_state_topic_created topic=%s partitions=%s replicas=%s", topic, buckets, replicas)
    wrong = problems(topic, found.settings, buckets, weak=weak, what=what)
    if wrong:
        message = f"{'; '.join(wrong)}. Change its settings with Kafka's tools, or use another kafka.prefix"
        raise StorageError(message)
    return found
