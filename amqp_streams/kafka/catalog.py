"""The logs that are topics of a cluster, as the node knows them. Decides what news of Kafka change."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from amqp_streams.kafka.brokers.administration import Extent, FoundTopic
from amqp_streams.kafka.brokers.fetching import Place
from amqp_streams.kafka.foreign import ForeignTopic
from amqp_streams.kafka.partition import KafkaPartition, Lost
from amqp_streams.kafka.settings import log_settings, refusal, times_refusal
from amqp_streams.kafka.topics import TopicNames, topic_changes
from amqp_streams.storage.ports import Partition, StoredLog
from amqp_streams.storage.questions import Others

_GONE_MAX: Final = 1000


class Catalog:
    """Logs by name, topics by name, and partitions by place.

    A log is *plain* if other programs use its topic (`TopicNames.plain`). `make`: makes a partition of a log.
    `dropped`: a partition is in no log any more.
    """

    def __init__(
        self,
        names: TopicNames,
        *,
        weak: bool,
        make: Callable[[str, Place, Extent, int], KafkaPartition],
        dropped: Callable[[KafkaPartition], None],
    ) -> None:
        self.others: Final[Others[Partition, StoredLog]] = Others()
        self.logs: Final[dict[str, StoredLog]] = {}
        self.topics: Final[dict[str, FoundTopic]] = {}
        self.partitions: Final[dict[Place, KafkaPartition]] = {}
        self.places: tuple[Place, ...] = ()
        """The partitions to look at. May be read in any thread."""
        self.changes = 0
        """How many changes of topics this node has made. May be read in any thread."""
        self._gone: Final[deque[tuple[str, int]]] = deque(maxlen=_GONE_MAX)
        """Identities of topics that are gone: a broker that is behind the others may still show them."""
        self._names: Final = names
        self._weak: Final = weak
        self._make: Final = make
        self._dropped: Final = dropped
        self._suspected: dict[str, tuple[str, int] | None] = {}
        """Topics that were gone or changed at the last look: identity now. Two looks must agree."""

    def wanted(self, topic: str) -> bool:
        """Whether a topic is a log."""
        return self._names.log_of(topic) is not None

    def log_of(self, topic: str) -> str:
        """The name of the log of a topic."""
        name = self._names.log_of(topic)
        assert name is not None, "only topics of logs are looked at"
        return name

    def topic_of(self, stored: StoredLog) -> str:
        """The name of the topic of a log."""
        return self._names.of_log(stored.name)

    def ends_of(self, topic: str) -> dict[Place, int]:
        """The ends of the partitions of a topic; empty if it is not known."""
        found = self.topics.get(topic)
        return {} if found is None else {place: self.partitions[place].end for place in found.places}

    def ends_now(self, places: Iterable[Place]) -> "Known":
        """The ends of the partitions at these places. May be called in any thread."""
        found = [self.partitions.get(place) for place in places]
        return {partition: (partition.lost, partition.end) for partition in found if partition is not None}

    def current(self, known: "Known") -> dict[Place, int]:
        """The ends that still say something: of partitions in logs that have lost nothing since then."""
        return {
            partition.place: end
            for partition, (lost, end) in known.items()
            # Another topic may have the place.
            if self.partitions.get(partition.place) is partition and partition.lost is lost
        }

    def is_gone(self, found: FoundTopic) -> bool:
        """Whether this very topic was removed: a broker that is behind the others may still show it."""
        return identity(found) in self._gone

    def seen(self, topic: str, found: FoundTopic | None, extents: Mapping[Place, Extent]) -> None:
        """Take in what was seen of one topic; None: it does not exist."""
        if found is not None and not self.is_gone(found):
            self.known(found, extents)
            self.moved(extents)
        elif found is None and topic in self.topics:
            stored = self.logs[self.log_of(topic)]
            self._lose(stored, f"log {stored.name!r} was deleted")

    def moved(self, extents: Mapping[Place, Extent]) -> None:
        """Take in where partitions begin and end."""
        grown = [
            self.partitions[place]
            for place, extent in extents.items()
            if place in self.partitions and self.partitions[place].move(extent)
        ]
        if grown:
            self.others.on_grown(grown)

    def compare(self, topics: Mapping[str, FoundTopic], extents: Mapping[Place, Extent]) -> None:
        """Add logs that others made, and remove those that are gone or other ones."""
        known = {name: identity(found) for name, found in self.topics.items()}
        now = {name: identity(found) for name, found in topics.items()}
        changes = topic_changes(
            {name: f"{each}" for name, each in known.items()}, {name: f"{each}" for name, each in now.items()}
        )
        before, self._suspected = (
            self._suspected,
            {name: now.get(name) for name in (*changes.gone, *changes.remade)},
        )
        for name, each in self._suspected.items():
            # A broker may be behind the others for a moment: two looks must agree.
            if name in before and before[name] == each:
                stored = self.logs[self.log_of(name)]
                reason = (
                    f"log {stored.name!r} was deleted"
                    if name not in now
                    else f"log {stored.name!r} was deleted and created again, or its partitions have changed"
                )
                self._lose(stored, reason)
        for name, found in topics.items():
            last = self.topics.get(name)
            if last is None and not self.is_gone(found):
                self.add(found, extents)
            elif last is not None and last != found and identity(last) == identity(found):
                self.change(found)

    def change(self, found: FoundTopic) -> None:
        """The settings of a topic changed elsewhere."""
        self.topics[found.name] = found
        stored = self.logs[self.log_of(found.name)]
        self.logs[stored.name] = replace(
            stored,
            settings=log_settings(found.settings),
            refusal=self._refusal(found),
            promise=_promise(found),
            foreign=self._foreign(found),
        )
        for place in found.places:
            self.partitions[place].message_bytes = found.settings.largest_message

    def known(self, found: FoundTopic, extents: Mapping[Place, Extent]) -> StoredLog:
        """The log of a topic that was found: a look may have found it before."""
        known = self.topics.get(found.name)
        if known is not None and identity(known) == identity(found):
            if known != found:
                self.change(found)
            return self.logs[self.log_of(found.name)]
        if known is not None:
            stored = self.logs[self.log_of(found.name)]
            self._lose(stored, f"log {stored.name!r} was deleted and created again")
        return self.add(found, extents)

    def _lose(self, stored: StoredLog, reason: str) -> None:
        """Another node, or another program, deleted a log."""
        self.remove(stored, reason)
        self.others.on_lost(stored, reason)

    def add(self, found: FoundTopic, extents: Mapping[Place, Extent]) -> StoredLog:
        """Add the log of a topic."""
        name = self.log_of(found.name)
        partitions = []
        for place in found.places:
            extent = extents.get(place, Extent(0, 0))
            partition = self._make(name, place, extent, found.settings.largest_message)
            self.partitions[place] = partition
            partitions.append(partition)
        stored = StoredLog(
            name,
            log_settings(found.settings),
            found.id,
            tuple(partitions),
            refusal=self._refusal(found),
            promise=_promise(found),
            foreign=self._foreign(found),
        )
        self.logs[name], self.topics[found.name] = stored, found
        self._places_changed()
        return stored

    def remove(self, stored: StoredLog, reason: str) -> None:
        """Remove a log. Its partitions give and take nothing any more, for this reason."""
        del self.logs[stored.name], self.topics[self.topic_of(stored)]
        self._gone.append((stored.incarnation, len(stored.partitions)))
        for partition in stored.partitions:
            assert isinstance(partition, KafkaPartition)
            del self.partitions[partition.place]
            partition.lose(reason)
            self._dropped(partition)
        self._places_changed()

    def _places_changed(self) -> None:
        # One tuple after the other: a thread reads it.
        self.places = tuple(self.partitions)

    def _foreign(self, found: FoundTopic) -> ForeignTopic | None:
        if found.name not in self._names.plain:
            return None
        return ForeignTopic(found.name, found.settings.compacted, found.settings.largest_message)

    def _refusal(self, found: FoundTopic) -> str | None:
        times = None if found.name in self._names.plain else times_refusal(found.name, found.settings)
        weak = None if self._weak else refusal(found.name, found.settings)
        return ". ".join(filter(None, [times, weak])) or None


Known: TypeAlias = Mapping[KafkaPartition, tuple[Lost | None, int]]
"""What partitions had lost, and their ends, at some moment."""


def identity(found: FoundTopic) -> tuple[str, int]:
    """What makes a topic another log: its id, and how many partitions it has."""
    return found.id, found.settings.partitions


def _promise(found: FoundTopic) -> str:
    times = "" if found.settings.append_times else "; times of producers"
    return f"replicated {found.settings.promise}{times}"
