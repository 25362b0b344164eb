"""[io] The questions of a node about logs, as jobs for Kafka: see `Store.ask`.

Laws: nothing here waits on the event loop's thread. What another node did with a log is known after a
question about it, and not only after the next look at all topics.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import sleep
from typing import Final, TypeAlias

from amqp_streams.config import LogSettings
from amqp_streams.errors import SettingRefusedError, StorageError
from amqp_streams.kafka.brokers.administration import Administration, Extent, FoundTopic, unanswered
from amqp_streams.kafka.brokers.fetching import Place
from amqp_streams.kafka.brokers.jobs import Job, Jobs
from amqp_streams.kafka.brokers.refreshing import Refreshed, Refresher
from amqp_streams.kafka.catalog import Catalog
from amqp_streams.kafka.settings import OF_RETENTION, configuration_of
from amqp_streams.kafka.topics import TopicNames
from amqp_streams.log_settings import Compression, log_name
from amqp_streams.storage.ports import StoredLog
from amqp_streams.storage.questions import Create, Update


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """How a store uses Kafka.

    `connection`: the settings of librdkafka for servers and security. `replicas`: of topics that are made.
    `weak`: producers may use topics that can lose accepted events. `message_bytes`: the largest message.
    `numbered`: the most idempotent producers at once. `remembered`: the most that a bucket remembers.
    """

    connection: Mapping[str, object]
    names: TopicNames = field(default_factory=TopicNames)
    replicas: int = 3
    weak: bool = False
    readers: int = 8
    message_bytes: int = 16 << 20
    numbered: int = 64
    remembered: int = 10_000


BEHIND_S: Final = 0.1
"""A topic that is not found is looked for again after this time."""
_Found: TypeAlias = tuple[FoundTopic, Mapping[Place, Extent]]


class Asking:
    """Jobs for questions. Their results change the catalog."""

    def __init__(
        self,
        options: KafkaOptions,
        administration: Administration,
        catalog: Catalog,
        jobs: Jobs,
        loop_call: Callable[..., object],
    ) -> None:
        self._options: Final = options
        self._administration: Final = administration
        self._catalog: Final = catalog
        self._refresher: Final = Refresher(administration, jobs, known=catalog.ends_of, loop_call=loop_call)

    def creating(self, question: Create) -> Job[StoredLog]:
        """Create a topic. Raises ValueError: it exists, or its name is not valid; SettingRefusedError."""
        name, options = log_name(question.name), self._options
        if name in self._catalog.logs:
            message = f"log {name} exists"
            raise ValueError(message)
        _require_settings(question.settings)
        configuration = configuration_of(
            question.settings, message_bytes=options.message_bytes, replicas=options.replicas
        )
        made = options.names.of_log(name), question.settings.partitions, options.replicas, configuration

        def created(found: FoundTopic) -> StoredLog:
            self._catalog.changes += 1
            return self._catalog.known(found, {})

        return Job(partial(self._administration.create, *made), created, change=True)

    def updating(self, question: Update) -> Job[StoredLog]:
        """Change the settings of a topic. Raises KeyError, ValueError, SettingRefusedError, StorageError."""
        stored = self._catalog.logs[question.name]
        if question.settings.partitions != len(stored.partitions):
            message = f"log {question.name} has {len(stored.partitions)} partitions forever"
            raise ValueError(message)
        _require_settings(question.settings)
        configuration = configuration_of(question.settings, message_bytes=0)
        changed = {key: value for key, value in configuration.items() if key in OF_RETENTION}
        _require_own(stored)
        topic = self._catalog.topics[self._catalog.topic_of(stored)]

        def updated(found: FoundTopic) -> StoredLog:
            self._catalog.changes += 1
            return self._catalog.known(found, {})

        return Job(partial(self._administration.alter, topic, changed), updated, change=True)

    def deleting(self, name: str) -> Job[None]:
        """Delete a topic. Raises KeyError, StorageError."""
        stored = self._catalog.logs[name]
        _require_own(stored)

        def deleted(_nothing: None) -> None:
            self._catalog.changes += 1
            now = self._catalog.logs.get(name)
            if now is not None and now.incarnation == stored.incarnation:
                self._catalog.remove(now, f"log {name} was deleted")

        topic = self._catalog.topics[self._catalog.topic_of(stored)]
        return Job(partial(self._administration.delete, topic), deleted, change=True)

    def finding(self, name: str) -> Job[StoredLog | None]:
        """Find a topic that another node may have created."""
        topic, administration = self._options.names.of_log(name), self._administration

        def find() -> _Found | None:
            found = administration.describe([topic]).get(topic)
            if found is None:
                # The broker may be behind the one that created the topic.
                sleep(BEHIND_S)
                found = administration.describe([topic]).get(topic)
            return None if found is None else (found, administration.extents(found.places))

        def known(found: _Found | None) -> StoredLog | None:
            # A broker that is behind the others still shows a topic that was deleted.
            if found is None or self._catalog.is_gone(found[0]):
                return None
            return self._catalog.known(*found)

        return Job(find, known)

    def refreshing(self, name: str) -> Job[None]:
        """Learn what other nodes did with a log, also whether they deleted it."""
        topic = self._options.names.of_log(name)

        def refreshed(answer: Refreshed) -> None:
            if answer.looked:
                self._catalog.seen(topic, answer.topic, answer.extents.found)
            else:
                self._catalog.moved(answer.extents.found)
            if name in self._catalog.logs and not answer.extents.found:
                raise unanswered(answer.extents)

        return Job(partial(self._refresher.refresh, topic), refreshed, waits=False)


def _require_settings(settings: LogSettings) -> None:
    if settings.compression != Compression.NONE:
        message = (
            f"compression = {str(settings.compression)!r} is not supported by a node on Kafka: set"
            " compression.type of the topic"
        )
        raise SettingRefusedError(message)


def _require_own(stored: StoredLog) -> None:
    if stored.foreign is not None:
        message = f"topic {stored.name!r} belongs to other programs: change it with Kafka's tools"
        raise StorageError(message)
