"""[io] Topics and partitions as Kafka's brokers describe them, and changes of topics.

Everything waits for Kafka, so it is called in threads only. What fails raises `StorageError` with Kafka's
reason; it never says that something does not exist because Kafka did not answer.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any, Final, NamedTuple, cast

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers.fetching import Place
from amqp_streams.kafka.settings import TopicSettings, topic_settings

ANSWER_S: Final = 5.0
"""How long a question to Kafka may take."""
# Their functions have no types.
EARLIEST: Final = cast("OffsetSpec", OffsetSpec.earliest())  # type: ignore[no-untyped-call]
LATEST: Final = cast("OffsetSpec", OffsetSpec.latest())  # type: ignore[no-untyped-call]
CHANGE_S: Final = 15.0
"""How long a change may take until every broker shows it."""
_AGAIN_S: Final = 0.05
_BATCH: Final = 200
"""Topics of one request for descriptions."""

log = logging.getLogger("amqp_streams.kafka")


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic as Kafka describes it. `id`: changes if the topic is deleted and created again."""

    name: str
    id: str
    settings: TopicSettings

    @property
    def places(self) -> list[Place]:
        """Its partitions in order."""
        return [Place(self.name, index) for index in range(self.settings.partitions)]


class Extent(NamedTuple):
    """The numbers of a partition that can be read: `start` included, `end` excluded."""

    start: int
    end: int


class Administration:
    """One connection to the brokers for questions and changes. Thread-safe."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        connection: dict[str, Any] = {"log.connection.close": False, **settings}
        self._admin: Final = AdminClient(connection, logger=log)

    def names(self) -> set[str]:
        """The names of all topics that this user may see.

        Raises:
            StorageError: Kafka does not answer.
        """
        try:
            return set(self._admin.list_topics(timeout=ANSWER_S).topics)
        except KafkaException as error:
            raise _refused("the topics cannot be listed", error) from error

    def describe(self, names: Iterable[str]) -> dict[str, FoundTopic]:
        """The topics with these names that exist.

        Raises:
            StorageError: Kafka does not answer, or does not permit it.
        """
        wanted, found = sorted(names), dict[str, FoundTopic]()
        for first in range(0, len(wanted), _BATCH):
            found |= self._described(wanted[first : first + _BATCH])
        return found

    def create(self, name: str, partitions: int, replicas: int, configuration: dict[str, str]) -> FoundTopic:
        """Create a topic, and wait until its partitions have leaders.

        Raises:
            ValueError: the topic already exists.
            StorageError: Kafka refuses it, or does not answer.
        """
        topic = NewTopic(name, partitions, replicas, config=configuration)
        try:
            self._admin.create_topics([topic], request_timeout=CHANGE_S)[name].result()
        except KafkaException as error:
            if _code(error) == KafkaError.TOPIC_ALREADY_EXISTS:
                message = f"topic {name} exists"
                raise ValueError(message) from error
            raise _refused(f"topic {name!r} was not created", error) from error
        return self._await_topic(name, lambda found: found is not None and self._led(found))

    def alter(self, found: FoundTopic, configuration: Mapping[str, str]) -> FoundTopic:
        """Change the configuration of a topic, and wait until it is visible.

        Raises StorageError: Kafka refuses it, or does not answer.
        """
        name = found.name
        changes = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in configuration.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
        try:
            self._admin.incremental_alter_configs([resource], request_timeout=CHANGE_S)[resource].result()
        except KafkaException as error:
            raise _refused(f"topic {name!r} was not changed", error) from error
        wanted = topic_settings(
            [found.settings.replicas] * found.settings.partitions,
            self._configurations([name])[name] | dict(configuration),
        )
        return self._await_topic(name, lambda now: now is not None and now.settings == wanted)

    def delete(self, name: str) -> None:
        """Delete a topic. Raises StorageError: Kafka refuses it, or does not answer."""
        try:
            self._admin.delete_topics([name], request_timeout=CHANGE_S)[name].result()
        except KafkaException as error:
            # Another node, or another program, was faster.
            if _code(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise _refused(f"topic {name!r} was not deleted", error) from error

    def extents(self, places: Iterable[Place]) -> dict[Place, Extent]:
        """The numbers that can be read of each partition; without those that cannot be asked now.

        Raises StorageError: no partition of any topic answered.
        """
        wanted = list(places)
        starts, reason = self._offsets(dict.fromkeys(wanted, EARLIEST))
        ends, _ = self._offsets(dict.fromkeys(wanted, LATEST))
        found = {place: Extent(starts[place], ends[place]) for place in starts.keys() & ends.keys()}
        if wanted and not found:
            message = f"no partition answers: {reason}"
            raise StorageError(message)
        return found

    def first_after(self, place: Place, after_ms: int) -> int | None:
        """The number of the first record with a later time; None if no record has one.

        Raises StorageError: Kafka does not answer.
        """
        # Kafka's own question includes the time.
        found, reason = self._offsets({place: OffsetSpec.for_timestamp(max(0, after_ms + 1))})
        if place not in found:
            message = f"{place}: the time cannot be looked up: {reason}"
            raise StorageError(message)
        return None if found[place] < 0 else found[place]

    def _offsets(self, wanted: Mapping[Place, OffsetSpec]) -> tuple[dict[Place, int], str]:
        """The offsets that Kafka knows, and why it does not know another."""
        found, reason = dict[Place, int](), ""
        if not wanted:
            return found, reason
        asked: Any = {TopicPartition(place.topic, place.partition): spec for place, spec in wanted.items()}
        try:
            answers = self._admin.list_offsets(
                asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ANSWER_S
            )
        except KafkaException as error:
            return found, reason_of(error)
        for partition, answer in answers.items():
            try:
                found[Place(partition.topic, partition.partition)] = answer.result().offset
            except KafkaException as error:
                reason = reason_of(error)
        return found, reason

    def _described(self, names: Sequence[str]) -> dict[str, FoundTopic]:
        answers = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=ANSWER_S)
        described = {}
        for name in names:
            try:
                described[name] = answers[name].result()
            except KafkaException as error:
                if _code(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise _refused(f"topic {name!r} cannot be described", error) from error
        configurations = self._configurations(described)
        found = {}
        for name, topic in described.items():
            # A topic that was deleted in between has no configuration.
            if name in configurations and topic.partitions:
                replicas = [len(partition.replicas) for partition in topic.partitions]
                settings = topic_settings(replicas, configurations[name])
                found[name] = FoundTopic(name, str(topic.topic_id), settings)
        return found

    def _configurations(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        found = {}
        for resource, answer in self._admin.describe_configs(resources, request_timeout=ANSWER_S).items():
            try:
                entries = answer.result()
            except KafkaException as error:
                if _code(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise _refused(
                        f"the settings of topic {resource.name!r} cannot be read", error
                    ) from error
                continue
            found[resource.name] = {
                key: entry.value for key, entry in entries.items() if entry.value is not None
            }
        return found

    def _led(self, found: FoundTopic) -> bool:
        ends, _ = self._offsets(dict.fromkeys(found.places, LATEST))
        return len(ends) == found.settings.partitions

    def _await_topic(self, name: str, condition: Callable[[FoundTopic | None], bool]) -> FoundTopic:
        """The topic, when the condition holds: brokers learn of a change one after the other."""
        until = monotonic() + CHANGE_S
        while True:
            found = self.describe([name]).get(name)
            if found is not None and condition(found):
                return found
            if monotonic() > until:
                message = f"topic {name!r} was changed, but the brokers do not show it after {CHANGE_S:g} s"
                raise StorageError(message)
            sleep(_AGAIN_S)


def _code(error: KafkaException) -> int | None:
    reason = error.args[0] if error.args else None
    return reason.code() if isinstance(reason, KafkaError) else None


def reason_of(error: KafkaException) -> str:
    reason = error.args[0] if error.args else None
    return reason.str() if isinstance(reason, KafkaError) else str(error)


def _refused(what: str, error: KafkaException) -> StorageError:
    return StorageError(f"{what}: {reason_of(error)}")
