"""[io] Asks Kafka where the partitions of a log begin and end, once for all that ask at the same time.

Law: an answer is as new as its question. Questions that come before an answer share the next one, so a
thousand links that attach at once cost a few requests. A log that does not answer delays no other log.

If a broker does not know a partition, or a partition ends earlier than the node knows, the topic is looked at
as well: another node may have deleted it, or deleted and created it again, or it has new leaders.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from time import monotonic, sleep
from typing import Final, NamedTuple

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers.administration import Administration, Extents, FoundTopic
from amqp_streams.kafka.brokers.fetching import Place
from amqp_streams.kafka.brokers.jobs import Jobs

WAIT_S: Final = 1.0
"""A broker may be behind the others: a topic is gone, or has no leader, if they say so for this time."""
_AGAIN_S: Final = 0.2


class Refreshed(NamedTuple):
    """What Kafka said. `topic`: None if it does not exist, or if it was not `looked` at."""

    extents: Extents
    looked: bool = False
    topic: FoundTopic | None = None


@dataclass(slots=True, eq=False)
class _Batch:
    """The questions about a topic. `next`: the answer that follows the one that Kafka is asked for."""

    next: "Future[Refreshed] | None" = None


class Refresher:
    """Asks Kafka. The methods are called on the event loop's thread, on which `loop_call` calls as well."""

    def __init__(
        self,
        administration: Administration,
        jobs: Jobs,
        *,
        known: Callable[[str], Mapping[Place, int]],
        loop_call: Callable[..., object],
    ) -> None:
        """`known`: the ends of the partitions of a topic, as the node knows them."""
        self._administration: Final = administration
        self._jobs: Final = jobs
        self._known: Final = known
        self._loop_call: Final = loop_call
        self._batches: Final[dict[str, _Batch]] = {}

    def refresh(self, topic: str) -> "Future[Refreshed]":
        """What Kafka says about a topic, at least as new as this call."""
        batch = self._batches.get(topic)
        if batch is None:
            self._batches[topic] = _Batch()
            return self._begin(topic, Future())
        if batch.next is None:
            batch.next = Future()
        return batch.next

    def _begin(self, topic: str, answer: "Future[Refreshed]") -> "Future[Refreshed]":
        known = self._known(topic)
        asked = self._administration.ask_extents(known)
        answer.add_done_callback(lambda _: self._loop_call(self._ended, topic))
        asked.add_done_callback(partial(self._answered, topic, known, answer))
        return answer

    def _ended(self, topic: str) -> None:
        following = self._batches[topic].next
        if following is None:
            del self._batches[topic]
        else:
            self._batches[topic].next = None
            self._begin(topic, following)

    # -- in the threads of Kafka's client, and of the jobs

    def _answered(
        self,
        topic: str,
        known: Mapping[Place, int],
        answer: "Future[Refreshed]",
        asked: "Future[Extents]",
    ) -> None:
        extents = asked.result()
        if not suspicious(known, extents):
            answer.set_result(Refreshed(extents))
            return
        try:
            looking = self._jobs.submit(partial(self._look, topic, extents))
        except RuntimeError as error:
            answer.set_exception(StorageError(f"the store is closed: {error}"))
            return
        looking.add_done_callback(partial(_looked, answer))

    def _look(self, topic: str, extents: Extents) -> Refreshed:
        until = monotonic() + WAIT_S
        while True:
            found = self._administration.describe([topic]).get(topic)
            if found is not None:
                extents = self._administration.ask_extents(found.places).result()
                if not extents.unknown:
                    return Refreshed(extents, looked=True, topic=found)
            if monotonic() > until:
                return Refreshed(extents, looked=True, topic=found)
            sleep(_AGAIN_S)


def suspicious(known: Mapping[Place, int], extents: Extents) -> bool:
    """Whether the topic may be gone or another one."""
    return bool(extents.unknown) or any(
        place in extents.found and extents.found[place].end < end for place, end in known.items()
    )


def _looked(answer: "Future[Refreshed]", looking: "Future[Refreshed]") -> None:
    error = looking.exception()
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(looking.result())
