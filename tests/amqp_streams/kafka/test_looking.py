"""Looks at Kafka: of which only some questions are answered, and while the store is closed."""

import itertools
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

import pytest

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers.administration import Administration, Extent, FoundTopic
from amqp_streams.kafka.brokers.fetching import Place
from amqp_streams.kafka.catalog import Catalog
from amqp_streams.kafka.looking import (
    LOOK_S,
    LOOK_S_MAX,
    SHARE,
    WRITTEN_EVERY,
    Look,
    Looker,
    pause_after,
)
from amqp_streams.kafka.topics import TopicNames
from amqp_streams.testing import ManualLoop
from tests.amqp_streams.kafka.test_catalog import FOUND, Node


class Slow:
    """Kafka without topics, which answers when the test says so."""

    def __init__(self) -> None:
        self.asked, self.answer = threading.Event(), threading.Event()

    def names(self) -> set[str]:
        self.asked.set()
        self.answer.wait()
        return set()

    def describe(self, _names: Iterable[str]) -> Mapping[str, FoundTopic]:
        return {}

    def extents(self, _places: Iterable[Place]) -> Mapping[Place, Extent]:
        return {}


def test_a_look_that_is_answered_while_the_store_is_closed_ends() -> None:
    kafka, loop = Slow(), ManualLoop()
    looker = Looker(
        cast("Administration", kafka), Node().catalog, loop_call=loop.call, on_look=lambda _look: None
    )
    looker.start()
    kafka.asked.wait()
    closing = threading.Thread(target=looker.close, daemon=True)
    closing.start()
    looker._handled.wait()  # from here on, only the thread of the looks has something to do
    kafka.answer.set()
    closing.join(30)
    assert not closing.is_alive()


PLACE = Place("amqp-streams.log.temps", 0)


class Cluster(Administration):
    """A cluster that does not describe topics, and whose partitions answer while `led`."""

    def __init__(self, *, led: bool) -> None:
        self._led_now = led

    def names(self) -> set[str]:
        message = "the topics cannot be listed"
        raise StorageError(message)

    def extents(self, places: Any) -> dict[Place, Extent]:
        if not self._led_now:
            message = "no partition answers"
            raise StorageError(message)
        return dict.fromkeys(places, Extent(0, 1))


def looks(cluster: Administration, known: Collection[Place] | Catalog, number: int = 2) -> Look:
    """A look; the second is the first one that asks for topics."""
    if isinstance(known, Catalog):
        catalog = known
    else:
        catalog = Catalog(TopicNames(), weak=False, make=cast("Any", None), dropped=cast("Any", None))
        catalog.places = tuple(known)
    found, enough = list[Look](), threading.Event()

    def looked(look: Look) -> None:
        found.append(look)
        if len(found) == number:
            enough.set()

    looker = Looker(
        cluster, catalog, loop_call=lambda call, *given: call(*given), on_look=looked, every_s=0.01
    )
    looker.start()
    assert enough.wait(60)
    looker.close()
    return found[number - 1]


def test_a_broker_that_describes_nothing_is_not_a_cluster_that_is_away() -> None:
    """Otherwise one broker that is stopped would make all nodes not ready."""
    look = looks(Cluster(led=True), [PLACE])
    assert look.failure is None
    assert look.topics is None
    assert look.extents == {PLACE: Extent(0, 1)}


def test_a_cluster_whose_partitions_do_not_answer_is_away() -> None:
    assert looks(Cluster(led=False), [PLACE]).failure == "no partition answers"


def test_a_cluster_without_known_logs_is_away_if_it_does_not_list_topics() -> None:
    assert looks(Cluster(led=True), []).failure == "the topics cannot be listed"


@pytest.mark.parametrize("answers", [True, False])
def test_a_partition_that_ends_earlier_than_known_is_asked_what_it_holds_back(answers: bool) -> None:
    """An open transaction holds accepted events back. Without an answer, they could seem to be lost."""
    places = FOUND.places
    asked = list[list[Place]]()

    class HeldBack(Cluster):
        def written_ends(self, places: Iterable[Place]) -> dict[Place, int]:
            asked.append(list(places))
            return dict.fromkeys(asked[-1], 5) if answers else {}

    catalog = Node().catalog
    catalog.add(FOUND, {place: Extent(0, end) for place, end in zip(places, (1, 5), strict=True)})
    look = looks(HeldBack(led=True), catalog)
    assert asked[0] == [places[1]]
    looks(HeldBack(led=True), catalog, WRITTEN_EVERY)
    assert asked[-1] == places
    assert look.written == ({places[1]: 5} if answers else {})
    assert look.extents == dict.fromkeys(places if answers else places[:1], Extent(0, 1))


def test_looks_at_thousands_of_partitions_leave_the_interpreter_to_the_event_loop() -> None:
    assert pause_after(0.0, LOOK_S) == pause_after(0.1, LOOK_S) == LOOK_S
    cpu_s = 0.4  # ten thousand partitions
    assert cpu_s / (cpu_s + pause_after(cpu_s, LOOK_S)) == pytest.approx(SHARE)
    assert pause_after(60.0, LOOK_S) == LOOK_S_MAX


def test_a_look_that_uses_the_interpreter_makes_the_next_one_later() -> None:
    moments, enough = list[float](), threading.Event()

    class Busy(Cluster):
        """Each question needs 20 ms of the interpreter."""

        def extents(self, places: Any) -> dict[Place, Extent]:
            until = time.thread_time() + 0.02
            while time.thread_time() < until:
                pass
            return super().extents(places)

    catalog = Catalog(TopicNames(), weak=False, make=cast("Any", None), dropped=cast("Any", None))
    catalog.places = (PLACE,)

    def looked(_look: Look) -> None:
        moments.append(time.monotonic())
        if len(moments) == 3:
            enough.set()

    looker = Looker(
        Busy(led=True), catalog, loop_call=lambda call, *given: call(*given), on_look=looked, every_s=0.001
    )
    looker.start()
    assert enough.wait(60)
    looker.close()
    assert min(later - before for before, later in itertools.pairwise(moments)) > 0.02 / SHARE * 0.9
