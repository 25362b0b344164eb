"""All idempotent producers of a node: bounds, and what is given up or forgotten for a new one."""

import pytest

from amqp_streams import names
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.kafka.numbered.producers import (
    FORGETTING_MAX,
    HELD_MS,
    LINGER_MS,
    OPENING_MAX,
    SPARE,
    Producers,
)
from amqp_streams.kafka.numbered.producing import (
    OPEN_MS,
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
        self.ending: list[ProducerKey] = []
        self.producers = Producers(
            "me",
            limit=limit,
            remembered=remembered,
            values=lambda _bucket: self.records,
            size=lambda _bucket: self.bytes,
            ending=lambda: self.ending,
            buckets=1,
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
                self._write(key, record)
                self.producers.ended(key, attempt, self.outcome, "reasons", now_ms)
            case Opened(key, count, failure):
                self.opened += [(key.producer, failure)] * count
            case Lost(key, reason):
                self.lost.append(reason)
            case Close():
                pass

    def _write(self, key: ProducerKey, record: ProducerRecord | None) -> None:
        self.records.pop(key.state, None)
        if record is not None:
            self.records[key.state] = encoded(record)
        self.producers.followed(key.state, self.records.get(key.state))

    def open(self, producer: str, now_ms: int = NOW) -> None:
        self.producers.open(ProducerKey("i", producer), 0, now_ms)
        self.run(now_ms)

    def attach(self, producer: str) -> None:
        self.open(producer)
        self.producers.attach(ProducerKey("i", producer))

    def knows(self, producer: str, **reached: int) -> None:
        self._write(ProducerKey("i", producer), ProducerRecord("other", 0, {0: 1}))

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
    # The other one may be that of another user, so its name is not told.
    assert stage.opened == [("new", "another producer cannot be forgotten for it now: attach again")]
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
    stage.producers.lose("another", "gone")
    assert len(stage.here) == 3
    stage.producers.lose("i", "gone")
    stage.run()
    assert stage.here == []
    stage.attach("a")
    stage.producers.lose_buckets(frozenset({0}), "lost")
    stage.run()
    assert stage.here == []
    stage.attach("d")
    assert stage.producers.producers[ProducerKey("i", "d")].phase is Phase.READY
    stage.producers.give_up("the node stops")
    stage.run()
    assert (stage.here, stage.lost[-1]) == ([], "the node stops")


def test_one_user_may_use_all_places_and_gives_one_to_each_that_has_less() -> None:
    stage = Stage(limit=4)
    for number in range(4):
        stage.open(f"m\x1f{number}", NOW + number)
        stage.producers.attach(ProducerKey("i", f"m\x1f{number}"))
    with pytest.raises(PeerError, match="all in use, and you have 4 of them"):
        stage.open("m\x1f4")
    stage.attach("n\x1f0")
    stage.attach("n\x1f1")
    # Those that were used last stay. Nobody gives way to a user that would have as much.
    assert stage.here == ["m\x1f2", "m\x1f3", "n\x1f0", "n\x1f1"]
    assert len(stage.lost) == 2
    assert "you have 4 of 4, and another user needs one" in stage.lost[0]
    for user in "mn":
        with pytest.raises(PeerError, match="all in use, and you have 2 of them"):
            stage.open(f"{user}\x1f9")


def test_producers_that_are_leaving_make_room_for_as_many_and_no_more() -> None:
    stage = Stage(limit=2)
    stage.attach("a")
    stage.attach("b")
    stage.producers.detach(stage.producers.producers[ProducerKey("i", "b")], NOW)
    stage.producers.open(ProducerKey("i", "c"), 0, NOW)
    assert stage.producers.producers[ProducerKey("i", "b")].phase is Phase.LEAVING
    for _ in range(9):
        with pytest.raises(PeerError, match="this node has 2 idempotent producers"):
            stage.producers.open(ProducerKey("i", "d"), 0, NOW)
    stage.run()
    assert stage.here == ["a", "c"]


def test_a_producer_that_was_opened_for_an_attach_keeps_its_place_for_a_moment() -> None:
    """An attacker that attaches all the time must not take it before its own link is attached."""
    stage = Stage(limit=1)
    stage.open("a")
    stage.producers.answered(ProducerKey("i", "a"), NOW)
    for now_ms in (NOW, NOW + HELD_MS - 1):
        with pytest.raises(PeerError, match="all in use"):
            stage.open("b", now_ms)
    stage.producers.attach(ProducerKey("i", "a"))
    stage.producers.detach(stage.producers.producers[ProducerKey("i", "a")], NOW)
    stage.open("b")
    assert stage.here == ["b"]
    # Its client has left.
    stage.producers.answered(ProducerKey("i", "b"), NOW)
    stage.open("c", NOW + HELD_MS)
    assert stage.here == ["c"]


def test_a_user_whose_producers_do_not_end_opens_no_more_and_another_user_does() -> None:
    stage = Stage(limit=2)
    stage.ending = [ProducerKey("i", f"m\x1f{number}") for number in range(2 + SPARE)]
    with pytest.raises(PeerError, match=r"you have 18 idempotent producers .* still ending: attach again"):
        stage.open("m\x1fnew")
    stage.attach("n\x1fnew")
    stage.ending.clear()
    stage.attach("m\x1fnew")
    assert stage.here == ["n\x1fnew", "m\x1fnew"]


def test_new_producers_of_a_user_make_its_own_be_forgotten_and_not_those_of_others() -> None:
    stage = Stage(remembered=4)
    stage.knows("n\x1fold")
    for number in range(30):
        stage.open(f"m\x1f{number}")
        stage.knows(f"m\x1f{number}")
    assert ProducerKey("i", "n\x1fold").state in stage.records
    assert len(stage.records) == 4
    # A user that has less gets room of the one that has most, as long as that has more.
    for number in range(3):
        stage.open(f"n\x1f{number}")
        stage.knows(f"n\x1f{number}")
    left = ("m\x1f28", "m\x1f29", "n\x1f1", "n\x1f2")
    assert list(stage.records) == [ProducerKey("i", each).state for each in left]


def test_one_user_does_not_use_up_all_that_is_forgotten_at_once() -> None:
    stage = Stage(limit=64, remembered=100)
    for number in range(100):
        stage.knows(f"m\x1f{number}")
    for number in range(FORGETTING_MAX // 2):
        stage.producers.open(ProducerKey("i", f"m\x1fnew{number}"), 0, NOW)
    with pytest.raises(PeerError, match="none can be forgotten now: attach again"):
        stage.producers.open(ProducerKey("i", "m\x1fnew"), 0, NOW)
    stage.attach("n\x1fnew")


def test_the_records_of_one_user_have_at_most_half_of_the_bytes_of_a_bucket() -> None:
    stage = Stage(limit=9)
    for user in "mn":
        stage.attach(f"{user}\x1fa")
    key = ProducerKey("i", "m\x1fbig")
    stage.producers.followed(key.state, b"x" * 500)
    mallory, nina = (stage.producers.producers[ProducerKey("i", f"{user}\x1fa")] for user in "mn")
    with pytest.raises(PeerError, match="your producers in bucket 0 need more than 500 bytes") as refused:
        stage.producers.require_room(mallory, 1)
    assert refused.value.condition == names.RESOURCE_LIMIT_EXCEEDED
    stage.producers.require_room(nina, 1)
    stage.producers.followed(key.state, None)
    stage.producers.require_room(mallory, 1)


def opening(stage: Stage) -> list[str]:
    """Whose transactional producers Kafka is asked for."""
    return [each.key.producer for each in stage.producers.effects if isinstance(each, Fence)]


def test_a_user_opens_a_few_producers_at_once_and_another_one_does_not_wait_for_them() -> None:
    stage = Stage(limit=64)
    for number in range(20):
        stage.producers.open(ProducerKey("i", f"m\x1f{number}"), 0, NOW)
    stage.producers.open(ProducerKey("i", "n\x1f0"), 0, NOW)
    assert opening(stage) == [*(f"m\x1f{number}" for number in range(OPENING_MAX)), "n\x1f0"]
    # A second attach of one that waits changes nothing.
    stage.producers.open(ProducerKey("i", "m\x1f19"), 0, NOW)
    assert len(opening(stage)) == OPENING_MAX + 1
    stage.run()
    assert len(stage.opened) == 22
    assert {failure for _, failure in stage.opened} == {None}


def test_attaches_whose_clients_have_left_before_their_turn_cost_nothing() -> None:
    stage = Stage(limit=64)
    keys = [ProducerKey("i", f"m\x1f{number}") for number in range(20)]
    for key in keys:
        stage.producers.open(key, 0, NOW)
    for key in keys:
        stage.producers.cancel(key, 0)
    # The threads of those that had begun have not ended.
    stage.ending = keys[:OPENING_MAX]
    stage.producers.open(ProducerKey("i", "m\x1fnew"), 0, NOW)
    stage.run()
    assert (stage.fenced, stage.here) == ([f"m\x1f{number}" for number in range(OPENING_MAX)], ["m\x1fnew"])
    stage.ending.pop()
    stage.producers.tick(NOW)
    stage.run()
    assert stage.opened == [("m\x1fnew", None)]


def test_a_producer_whose_turn_does_not_come_is_refused() -> None:
    stage = Stage()
    stage.ending = [ProducerKey("i", f"m\x1f{number}") for number in range(OPENING_MAX)]
    stage.producers.open(ProducerKey("i", "m\x1fnew"), 0, NOW)
    stage.producers.tick(NOW + OPEN_MS - 1)
    stage.run()
    assert stage.opened == []
    stage.producers.tick(NOW + OPEN_MS)
    stage.run()
    assert stage.opened == [("m\x1fnew", "it is not ready after 30 s: others of yours are before it")]
    assert stage.here == []


def test_a_client_that_leaves_while_another_producer_is_forgotten_for_it_opens_nothing() -> None:
    stage = Stage(remembered=1)
    stage.knows("old")
    key = ProducerKey("i", "new")
    stage.producers.open(key, 0, NOW)
    stage.producers.cancel(key, 0)
    stage.run()
    assert (stage.fenced, stage.here) == (["old"], [])
