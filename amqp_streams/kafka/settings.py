"""The settings of a topic: what they promise, and those of the topics that nodes make. Pure.

Law: accepted means that an event is in the memory of all replicas in sync, and that these are at least
`min.insync.replicas`. So an accepted event survives the loss of `min.insync.replicas` - 1 brokers, unless a
replica that was not in sync may lead (an unclean election). A topic that does not promise this is *weak*: the
node refuses producers on it, unless its operator allows weak topics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from amqp_streams.config import LogSettings
from amqp_streams.log_settings import BY_FIELD, PARTITIONS_MAX

REPLICAS_MIN: Final = 3
IN_SYNC_MIN: Final = 2
SEGMENT_BYTES_MIN: Final = 1 << 20
SEGMENT_MS_MIN: Final = 60_000
"""Kafka's own bounds since version 4.0 (KIP-1030)."""
RECORD_OVERHEAD: Final = 512
"""What Kafka adds to a message at most, besides its value: a batch with one record, and room for a key."""

_IN_SYNC: Final = "min.insync.replicas"
_UNCLEAN: Final = "unclean.leader.election.enable"
_MESSAGE_BYTES: Final = "max.message.bytes"
_TIMES: Final = "message.timestamp.type"
_CLEANUP: Final = "cleanup.policy"
_RETENTION_MS: Final = "retention.ms"
_RETENTION_BYTES: Final = "retention.bytes"
_SEGMENT_MS: Final = "segment.ms"
_SEGMENT_BYTES: Final = "segment.bytes"
_UNBOUNDED: Final = -1
OF_RETENTION: Final = frozenset({_RETENTION_MS, _RETENTION_BYTES, _SEGMENT_MS, _SEGMENT_BYTES})
"""What a change of a log's settings changes in Kafka."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What the node reads of a topic.

    `replicas`: of the partition that has the fewest. `message_bytes`: of the largest record with its batch.
    `append_times`: the times of records are those of the broker, not those of their producers.
    """

    partitions: int
    replicas: int
    in_sync_min: int
    unclean: bool
    message_bytes: int
    append_times: bool
    compacted: bool
    retention_ms: int | None
    retention_bytes: int | None
    segment_ms: int
    segment_bytes: int
    removes: bool = False
    """Old records are removed by age or size, whether they were replaced or not."""

    @property
    def promise(self) -> str:
        """How many brokers have an accepted event at least, and how many should: `2/3`."""
        return f"{min(self.in_sync_min, self.replicas)}/{self.replicas}"

    @property
    def largest_message(self) -> int:
        """The bytes of the largest message that is certain to fit."""
        return max(0, self.message_bytes - RECORD_OVERHEAD)


def topic_settings(replicas: Sequence[int], configuration: Mapping[str, str]) -> TopicSettings:
    """The settings of a topic, from the replicas of its partitions and Kafka's configuration of the topic.

    Raises:
        KeyError: the configuration has not all of them: it is that of a broker that is too old.
        ValueError: a value is not a number.
    """

    def bound(name: str) -> int | None:
        value = int(configuration[name])
        return None if value == _UNBOUNDED else value

    return TopicSettings(
        partitions=len(replicas),
        replicas=min(replicas),
        in_sync_min=int(configuration[_IN_SYNC]),
        unclean=configuration[_UNCLEAN].lower() == "true",
        message_bytes=int(configuration[_MESSAGE_BYTES]),
        append_times=configuration[_TIMES] == "LogAppendTime",
        compacted="compact" in configuration[_CLEANUP].split(","),
        retention_ms=bound(_RETENTION_MS),
        retention_bytes=bound(_RETENTION_BYTES),
        segment_ms=int(configuration[_SEGMENT_MS]),
        segment_bytes=int(configuration[_SEGMENT_BYTES]),
        removes="delete" in configuration[_CLEANUP].split(","),
    )


def weaknesses(settings: TopicSettings) -> tuple[str, ...]:
    """Why an accepted event could be lost with one broker; empty if the topic is not weak."""
    found = []
    if settings.replicas < REPLICAS_MIN:
        found.append(f"it has {settings.replicas} replicas (at least {REPLICAS_MIN} are needed)")
    if settings.in_sync_min < IN_SYNC_MIN:
        found.append(f"{_IN_SYNC} is {settings.in_sync_min} (at least {IN_SYNC_MIN} is needed)")
    if settings.unclean:
        found.append(f"{_UNCLEAN} is true")
    return tuple(found)


def refusal(topic: str, settings: TopicSettings) -> str | None:
    """The text for a producer that is refused because the topic is weak; None if the topic is not weak."""
    reasons = weaknesses(settings)
    if not reasons:
        return None
    return (
        f"topic {topic!r} may lose accepted events when a broker is lost: {'; '.join(reasons)}. Change the"
        " topic, or allow weak topics with --kafka-weak"
    )


def configuration_of(
    settings: LogSettings, *, message_bytes: int, replicas: int = REPLICAS_MIN
) -> dict[str, str]:
    """Kafka's configuration of the topic of a log, for its creation and for changes.

    Segments are not smaller or younger than Kafka allows. `message_bytes`: the largest message of the node.
    `replicas`: those that the topic gets; a topic with one replica is weak, and would refuse all events if it
    needed two.
    """
    return {
        _IN_SYNC: str(min(IN_SYNC_MIN, replicas)),
        _UNCLEAN: "false",
        _TIMES: "LogAppendTime",
        _CLEANUP: "delete",
        _MESSAGE_BYTES: str(message_bytes + RECORD_OVERHEAD),
        _RETENTION_MS: str(_UNBOUNDED if settings.retention_ms is None else settings.retention_ms),
        _RETENTION_BYTES: str(_UNBOUNDED if settings.retention_bytes is None else settings.retention_bytes),
        _SEGMENT_MS: str(max(settings.segment_ms, SEGMENT_MS_MIN)),
        _SEGMENT_BYTES: str(min(max(settings.segment_bytes, SEGMENT_BYTES_MIN), (1 << 31) - 1)),
    }


def while_copied(configuration: Mapping[str, str]) -> dict[str, str]:
    """The configuration of a topic while a log is copied to it.

    The copy gives the times, which may be old or ahead of the clock, and no record is removed meanwhile.
    """
    return {
        **configuration,
        _TIMES: "CreateTime",
        _RETENTION_MS: str(_UNBOUNDED),
        _RETENTION_BYTES: str(_UNBOUNDED),
        # Kafka ignores these two when the topic has the times of the brokers.
        "message.timestamp.before.max.ms": str((1 << 63) - 1),
        "message.timestamp.after.max.ms": str((1 << 63) - 1),
    }


def after_copy(configuration: Mapping[str, str]) -> dict[str, str]:
    """What changes when a copy has ended: the topic becomes one of `configuration`."""
    return {key: configuration[key] for key in (_TIMES, _RETENTION_MS, _RETENTION_BYTES)}


def times_refusal(topic: str, settings: TopicSettings) -> str | None:
    """The text for a producer if the times of records are those of producers; None if they are not.

    `topic`: one of our own. It has such times while a log is copied to it, or if another program made it.
    """
    if settings.append_times:
        return None
    return (
        f"{_TIMES} of topic {topic!r} is CreateTime: set it to LogAppendTime, unless 'amqp-streams log copy'"
        " is copying its log, which sets it at the end"
    )


def log_settings(settings: TopicSettings) -> LogSettings:
    """The settings of the log whose topic this is. A bound that a log cannot have becomes the nearest it can.

    Raises:
        ValueError: the topic has more partitions than a log can have.
    """

    def within(name: str, value: int | None) -> int | None:
        if value is None:
            return None
        setting = BY_FIELD[name]
        return min(max(value, setting.least), setting.most)

    bounds = {
        "retention_ms": settings.retention_ms,
        "retention_bytes": settings.retention_bytes,
        "segment_ms": settings.segment_ms,
        "segment_bytes": settings.segment_bytes,
    }
    if settings.partitions > PARTITIONS_MAX:
        message = f"the topic has {settings.partitions} partitions; a log has at most {PARTITIONS_MAX}"
        raise ValueError(message)
    values = {name: within(name, value) for name, value in bounds.items()}
    return LogSettings.model_validate({"partitions": settings.partitions} | values)
