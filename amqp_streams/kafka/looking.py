"""[io] Looks at Kafka regularly: where partitions begin and end, and which topics exist.

A thread asks; the results go to the event loop. Other nodes and other programs change Kafka as well, so what
the node knows is at most as old as the time between two looks.

Law: looks take at most `SHARE` of the interpreter's time, as long as that makes the time between two of them
not longer than `LOOK_S_MAX`. The event loop needs the interpreter as well, and a look at thousands of
partitions needs it for long.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import thread_time
from typing import Final

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers.administration import Administration, Extent, FoundTopic
from amqp_streams.kafka.brokers.fetching import Place
from amqp_streams.kafka.catalog import Catalog, Known

LOOK_S: Final = 1.0
"""The time between two looks at the partitions, at least."""
LOOK_S_MAX: Final = 5.0
SHARE: Final = 0.1
TOPICS_EVERY: Final = 2
"""Each second look is at the topics as well."""
WRITTEN_EVERY: Final = 10
"""Each tenth look asks all partitions what transactions hold back."""

log = logging.getLogger("amqp_streams.kafka")


@dataclass(frozen=True, slots=True)
class Look:
    """What Kafka said. `topics`: None if it was not asked. `failure`: why it did not answer.

    `changes`: how many changes of topics the node had made when the look began. `known`: the ends that the
    node knew then. `written`: the numbers after the last records, at least of the partitions that cannot be
    read up to the end that the node knew.
    """

    changes: int
    extents: Mapping[Place, Extent]
    topics: Mapping[str, FoundTopic] | None = None
    failure: str | None = None
    known: Known = field(default_factory=dict)
    written: Mapping[Place, int] = field(default_factory=dict)


def pause_after(cpu_s: float, every_s: float) -> float:
    """The time until the next look, after one whose thread has used the CPU for so long.

    Time in which the thread waits for Kafka does not count: a broker that does not answer makes looks long,
    and must not make them rare.
    """
    return max(every_s, min(LOOK_S_MAX, cpu_s * (1 - SHARE) / SHARE))


class Looker:
    """Looks until it is closed. `on_look` is called on the event loop's thread."""

    def __init__(
        self,
        administration: Administration,
        catalog: Catalog,
        *,
        loop_call: Callable[..., object],
        on_look: Callable[[Look], None],
        every_s: float = LOOK_S,
    ) -> None:
        self._every_s: Final = every_s
        self._administration: Final = administration
        self._catalog: Final = catalog
        self._loop_call: Final = loop_call
        self._on_look: Final = on_look
        self._stopping: Final = threading.Event()
        self._handled: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name="kafka-looks", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """End the thread. A question that Kafka does not answer is waited for."""
        self._stopping.set()
        self._handled.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        number, pause_s = 0, self._every_s
        while not self._stopping.wait(pause_s):
            number, began_s = number + 1, thread_time()
            try:
                look = self._look(
                    with_topics=number % TOPICS_EVERY == 0, with_written=number % WRITTEN_EVERY == 0
                )
            except StorageError as error:
                look = Look(self._catalog.changes, {}, failure=str(error))
            except Exception as error:
                # The thread must live: the next look may succeed.
                log.exception("kafka_look_failed")
                look = Look(self._catalog.changes, {}, failure=f"{type(error).__name__}: {error}")
            pause_s = pause_after(thread_time() - began_s, self._every_s)
            self._handled.clear()
            # `close` may have come before the clear: nothing would end the wait.
            if self._stopping.is_set():
                return
            self._loop_call(self._handle, look)
            # A busy loop must not collect looks.
            self._handled.wait()

    def _look(self, *, with_topics: bool, with_written: bool) -> Look:
        changes, places = self._catalog.changes, self._catalog.places
        topics = None
        if with_topics or not places:
            try:
                topics = self._topics()
            except StorageError:
                # One broker that does not answer is not a cluster that is away: the partitions show that.
                if not places:
                    raise
            else:
                # A new log must not be shown without its events.
                new = (place for found in topics.values() for place in found.places)
                places = tuple(dict.fromkeys((*places, *new)))
        # Only a leader that was asked later can lack what the node knew.
        known = self._catalog.ends_now(places)
        extents = self._administration.extents(places)
        # A transaction that has not ended holds back events behind it that were accepted. They are not lost.
        held_back = [
            partition.place
            for partition, (_, end) in known.items()
            if partition.place in extents and extents[partition.place].end < end
        ]
        asked = list(extents) if with_written else held_back
        written = self._administration.written_ends(asked) if asked else {}
        for place in held_back:
            if place not in written:
                del extents[place]  # it counts as a partition that has not answered
        return Look(changes, extents, topics, known=known, written=written)

    def _topics(self) -> dict[str, FoundTopic]:
        return self._administration.describe(filter(self._catalog.wanted, self._administration.names()))

    def _handle(self, look: Look) -> None:
        self._handled.set()
        if not self._stopping.is_set():
            self._on_look(look)
