"""All idempotent producers of a node: bounds, and what is given up or forgotten for a new one."""

import pytest

from amqp_streams import names
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.kafka.numbered.producers import LINGER_MS, Producers
from amqp_streams.kafka.numbered.producing import (
    Close,
    Commit,
    Effect,
    Fence,
    Lost,
    Opened,
    Outcome,
    Phase,
    Read,
)
from amqp_streams.kafka.numbered.records import ProducerKey, ProducerRecord, encoded

NOW = 5000


class Stage:
    """Producers, and a Kafka that answers everything: `records` is the topic of numbers, one bucket."""

    def __init__(self, *, limit: int = 2, remembered: int = 100) -> None:
        self.records: dict[str, bytes] = {}
        self.bytes = 0
        self.opened: list[tuple[str, str | None]] = []
        self.lost: list[str] = []
        self.fenced: list[str] = []
        self.outcome = Outcome.COMMITTED
        self.producers = Producers(
            "me",
            limit=limit,
            remembered=remembered,
            values=lambda _bucket: self.records,
            size=lambda _bucket: self.bytes,
            bytes_max=1000,
        )

    def run(self, now_ms: int = NOW) -> None:
        while self.producers.effects:
            self._perform(self.producers.effects.pop(0), now_ms)

    def _perform(self, effect: Effect, now_ms: int) -> None:
        match effect:
            case Fence(key, attempt):
                self.fenced.append(key.producer)
                self.producers.fenced(key, attempt, None, now_ms)
            case Read(key, attempt):
                self.producers.read(key, attempt, None, now_ms)
            case Commit(key, attempt, record):
                self.records.pop(key.state, None)
                if record is not None:
                    self.records[key.state] = encoded(record)
                self.producers.ended(key, attempt, self.outcome, "reasons", now_ms)
            case Opened(key, count, failure):
                self.opened += [(key.producer, failure)] * count
            case Lost(key, reason):
                self.lost.append(reason)
            case Close():
                pass

    def open(self, producer: str, now_ms: int = NOW) -> None:
        self.producers.open(ProducerKey("i", producer), 0, now_ms)
        self.run(now_ms)

    def attach(self, producer: str) -> None:
        self.open(producer)
        self.producers.attach(ProducerKey("i", producer))

    def knows(self, producer: str, **reached: int) -> None:
        key = ProducerKey("i", producer)
        self.records[key.state] = encoded(ProducerRecord("other", 0, {0: 1}))

    @property
    def here(self) -> list[str]:
        return [key.producer for key in self.producers.producers]


def test_more_producers_than_the_limit_are_refused_while_all_are_in_use() -> None:
    stage = Stage()
    stage.attach("a")
    stage.attach("b")
    with pytest.raises(PeerError, match=r"this node has 2 idempotent producers.*kafka\.numbered") as refused:
        stage.open("c")
    assert refused.value.condition == names.RESOURCE_LIMIT_EXCEEDED
    stage.attach("a")
    assert stage.producers.in_use == 2


def test_a_producer_without_a_link_gives_way_to_a_new_one_and_later_to_none() -> None:
    stage = Stage()
    stage.attach("a")
    stage.producers.detach(stage.producers.producers[ProducerKey("i", "a")], NOW)
    stage.attach("b")
    stage.attach("c")
    assert stage.here == ["b", "c"]
    stage.producers.detach(stage.producers.producers[ProducerKey("i", "b")], NOW)
    stage.producers.tick(NOW + LINGER_MS - 1)
    stage.run()
    assert stage.here == ["b", "c"]
    stage.producers.tick(NOW + LINGER_MS)
    stage.run()
    assert stage.here == ["c"]
    # It has stored nothing, so nothing of it is left.
    assert list(stage.records) == [ProducerKey("i", "c").state]


def test_ten_thousand_producers_that_come_and_go_leave_nothing() -> None:
    stage = Stage(limit=3)
    for number in range(10_000):
        stage.attach(f"p{number}")
        stage.producers.detach(stage.producers.producers[ProducerKey("i", f"p{number}")], NOW + number)
    assert len(stage.here) <= 3
    assert len(stage.records) <= 3


def test_the_producer_that_was_idle_longest_is_fenced_and_forgotten_for_a_new_one() -> None:
    stage = Stage(remembered=2)
    stage.knows("old")
    stage.knows("young")
    stage.attach("new")
    assert stage.fenced == ["old", "new"]
    assert list(stage.records) == [ProducerKey("i", each).state for each in ("young", "new")]
    # One that is known needs no room.
    stage.attach("young")
    assert stage.fenced[2:] == ["young"]


def test_producers_with_links_here_are_not_forgotten() -> None:
    stage = Stage(limit=9, remembered=1)
    stage.attach("a")
    with pytest.raises(PeerError, match=r"1 producers are known \(limits\.producers\)"):
        stage.open("b")


def test_a_producer_that_has_stored_events_meanwhile_is_not_forgotten() -> None:
    stage = Stage(remembered=1)
    stage.knows("old")
    stage.producers.open(ProducerKey("i", "new"), 0, NOW)
    stage.records[ProducerKey("i", "old").state] = encoded(ProducerRecord("other", 0, {0: 2}))
    stage.run()
    assert stage.opened == [("new", None)]
    assert ProducerKey("i", "old").state in stage.records


def test_an_attach_is_refused_if_no_other_can_be_forgotten() -> None:
    stage = Stage(remembered=1)
    stage.knows("old")
    stage.outcome = Outcome.UNKNOWN
    stage.open("new")
    assert stage.opened == [("new", "producer 'old' cannot be forgotten for it: reasons")]
    assert stage.here == []


def test_an_attach_of_a_producer_that_is_being_forgotten_wins() -> None:
    stage = Stage(remembered=1)
    stage.knows("old")
    stage.producers.open(ProducerKey("i", "new"), 0, NOW)
    stage.producers.open(ProducerKey("i", "old"), 0, NOW)
    stage.run()
    assert sorted(stage.opened) == [("new", None), ("old", None)]
    assert set(stage.records) == {ProducerKey("i", each).state for each in ("old", "new")}


def test_what_the_topic_says_of_another_node_closes_the_links() -> None:
    stage = Stage()
    stage.attach("a")
    key = ProducerKey("i", "a")
    stage.producers.followed("home", b"{}")
    stage.producers.followed(key.state, encoded(ProducerRecord("me", 0)))
    stage.run()
    assert stage.lost == []
    # A later version wrote it.
    stage.producers.followed(key.state, b'{"v":2}')
    stage.run()
    assert stage.lost == ["producer 'a' was attached to another node"]
    with pytest.raises(StorageError, match="attach again"):
        stage.producers.attach(key)


def test_a_bucket_with_too_many_bytes_takes_no_more_partitions() -> None:
    stage = Stage()
    stage.attach("a")
    producer = stage.producers.producers[ProducerKey("i", "a")]
    producer.record = ProducerRecord("me", 0, {0: 1})
    stage.bytes = 1000
    stage.producers.require_room(producer, 0)
    with pytest.raises(PeerError, match="send to fewer partitions") as refused:
        stage.producers.require_room(producer, 1)
    assert refused.value.condition == names.RESOURCE_LIMIT_EXCEEDED


def test_the_end_of_a_log_of_buckets_or_of_the_node_ends_producers() -> None:
    stage = Stage(limit=4)
    for producer in "abc":
        stage.attach(producer)
    key = ProducerKey("i", "a")
    stage.producers.lose("another", "gone")
    stage.producers.lose_buckets(frozenset({key.bucket}), "lost")
    stage.run()
    assert "a" not in stage.here
    stage.producers.lose("i", "gone")
    stage.run()
    assert stage.here == []
    stage.attach("d")
    assert stage.producers.producers[ProducerKey("i", "d")].phase is Phase.READY
    stage.producers.give_up("the node stops")
    stage.run()
    assert (stage.here, stage.lost[-1]) == ([], "the node stops")
