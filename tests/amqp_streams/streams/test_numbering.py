"""A numbered event is stored once and in order, and an accepted event is stored, with any failures and
repetitions.
"""

import random
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.storage.ports import PRODUCER_ID_BYTES_MAX, CommitDone, Numbers
from amqp_streams.streams.numbering import Numbered, Numbering, producer_id, stored_id
from amqp_streams.testing import MemoryStore
from amqp_streams.wire.types import Symbol, Value

DAY_MS = 24 * 3600 * 1000
NOW = 1_700_000_000_000
FULL = StorageError("no space")


class Desk:
    """One partition of a store whose commits end when the test requests it, and its numbering."""

    def __init__(self, *, limit: int = 100, expiry_ms: int = 7 * DAY_MS) -> None:
        self.store = MemoryStore(auto=False)
        self.log = self.store.create("temps", LogSettings(), incarnation="i")
        self.partition = self.log.partitions[0]
        self.numbering = Numbering(limit=limit, expiry_ms=expiry_ms)
        self.store.on_commit = self.numbering.committed
        self.now_ms = NOW

    def attach(self, producer: str = "p") -> Numbered:
        return self.numbering.attach(self.log, producer, None)

    def send(self, link: Numbered, *sequences: int) -> dict[str, list[int]]:
        """Send events, and return their outcomes by sequence number."""
        numbering, partition, commit = self.numbering, self.partition, self.partition.queue.sequence
        sifted = numbering.sift(link, partition, sequences, commit)
        fresh = array("Q", [sequences[place] for place in sifted.fresh])
        if fresh:
            try:
                numbers = Numbers(link.producer, fresh, numbering.admit(link, partition, self.now_ms))
                partition.append(
                    [b"%d" % sequence for sequence in fresh], bytes(len(fresh)), self.now_ms, numbers
                )
            except (StorageError, PeerError) as error:
                link.owe(partition, fresh[0], error)
                sifted.refused += [(place, error) for place in (*sifted.fresh, *sifted.twins)]
                fresh = array("Q")
                sifted.twins = []
            else:
                numbering.appended(link, partition, numbers, commit)
        told = {
            "fresh": list(fresh),
            "settled": [sequences[place] for place in sifted.settled],
            "earlier": [sequences[place] for place in sifted.earlier],
            "current": [sequences[place] for place in (*sifted.current, *sifted.twins)],
            "refused": [sequences[place] for place, _ in sifted.refused],
        }
        return {what: some for what, some in told.items() if some}

    def commit(self, *, failing: bool = False) -> CommitDone:
        if failing:
            self.store.fail(self.partition, FULL, stop=False)
        self.store.commit()
        return self.store.complete()

    def stored(self) -> list[int]:
        chunk = self.partition.read(0, 1 << 20)
        return [] if chunk is None else [int(message) for part in self._all() for message in part]

    def _all(self) -> list[Sequence[bytes]]:
        parts: list[Sequence[bytes]] = []
        at = 0
        while chunk := self.partition.read(at, 1 << 20):
            parts.append(chunk.messages)
            at += len(chunk)
        return parts


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_number_that_is_durable_is_settled_and_not_stored(desk: Desk) -> None:
    link = desk.attach()
    assert desk.send(link, 0, 1, 2) == {"fresh": [0, 1, 2]}
    desk.commit()
    assert desk.send(link, 1, 2, 3, 7) == {"settled": [1, 2], "fresh": [3, 7]}
    desk.commit()
    assert desk.stored() == [0, 1, 2, 3, 7]


def test_a_number_on_its_way_shares_the_fate_of_its_commit(desk: Desk) -> None:
    link, other = desk.attach(), desk.attach()
    desk.send(link, 0, 1)
    desk.store.commit()
    desk.send(link, 2)
    assert desk.send(other, 0, 1, 2, 3) == {"earlier": [0, 1], "current": [2], "fresh": [3]}
    desk.store.complete()
    desk.commit()
    assert desk.stored() == [0, 1, 2, 3]


def test_the_same_number_twice_in_a_batch_is_stored_once(desk: Desk) -> None:
    assert desk.send(desk.attach(), 4, 4, 3, 5) == {"fresh": [4, 5], "current": [4, 3]}


def test_events_after_a_failed_number_are_refused_until_it_is_sent_again(desk: Desk) -> None:
    link = desk.attach()
    desk.send(link, 0, 1, 2)
    desk.commit(failing=True)
    assert desk.send(link, 3, 4) == {"refused": [3, 4]}
    assert desk.send(link, 1, 2) == {"refused": [1, 2]}
    assert desk.send(link, 0, 1, 2) == {"fresh": [0, 1, 2]}
    assert desk.send(link, 3) == {"fresh": [3]}
    desk.commit()
    assert desk.stored() == [0, 1, 2, 3]


def test_links_whose_events_failed_together_must_all_resend(desk: Desk) -> None:
    link, other = desk.attach(), desk.attach()
    desk.send(link, 5, 6)
    desk.send(other, 6)
    desk.commit(failing=True)
    assert desk.send(other, 7) == {"refused": [7]}
    assert desk.send(other, 6, 7) == {"fresh": [6, 7]}
    assert link.holes[desk.partition].sequence == 5


def test_a_link_that_is_attached_again_owes_nothing(desk: Desk) -> None:
    link = desk.attach()
    desk.send(link, 0)
    desk.commit(failing=True)
    desk.numbering.detach(link)
    assert desk.send(desk.attach(), 1) == {"fresh": [1]}


def test_durable_events_are_settled_on_a_link_with_unanswered_failures(desk: Desk) -> None:
    link = desk.attach()
    desk.send(link, 0, 1)
    desk.commit()
    desk.send(link, 2)
    desk.commit(failing=True)
    assert desk.send(link, 0, 1, 3) == {"settled": [0, 1], "refused": [3]}


def test_an_append_that_is_refused_is_owed(desk: Desk) -> None:
    link = desk.attach()
    desk.send(link, 0)
    desk.commit()
    desk.store.fail(desk.partition, FULL)
    assert desk.send(link, 1, 2, 2) == {"refused": [1, 2, 2]}
    assert desk.send(link, 3) == {"refused": [3]}


def test_an_attach_learns_how_far_the_producer_is_including_events_in_flight(desk: Desk) -> None:
    """Otherwise a new process would reuse numbers that are about to be stored."""
    link = desk.attach()
    assert link.highest is None
    desk.send(link, 41)
    assert desk.attach().highest == 41
    assert desk.attach("other").highest is None
    desk.commit()
    assert desk.attach().highest == 41


def test_producers_do_not_know_each_other(desk: Desk) -> None:
    desk.send(desk.attach("a"), 10)
    assert desk.send(desk.attach("b"), 3) == {"fresh": [3]}


# -- forgetting


def test_beyond_the_limit_the_producer_idle_for_longest_is_forgotten() -> None:
    desk = Desk(limit=2)
    for producer in "abc":
        link = desk.attach(producer)
        desk.send(link, 7)
        desk.commit()
        desk.numbering.detach(link)
        desk.now_ms += 1
    assert list(desk.partition.producers) == ["b", "c"]
    assert desk.send(desk.attach("b"), 7) == {"settled": [7]}


def test_no_room_is_left_while_all_are_in_use_and_new_ones_are_owed() -> None:
    desk = Desk(limit=2)
    first, second, third = desk.attach("a"), desk.attach("b"), desk.attach("c")
    desk.send(first, 1)
    desk.send(second, 1)
    assert desk.send(third, 1, 2) == {"refused": [1, 2]}
    error = third.holes[desk.partition].error
    assert isinstance(error, PeerError)
    assert error.condition == names.RESOURCE_LIMIT_EXCEEDED
    desk.commit()
    desk.numbering.detach(first)
    assert desk.send(third, 2) == {"refused": [2]}
    assert desk.send(third, 1, 2) == {"fresh": [1, 2]}


def test_a_producer_is_forgotten_once_though_several_come() -> None:
    desk = Desk(limit=2)
    for producer in "ab":
        link = desk.attach(producer)
        desk.send(link, 1)
        desk.numbering.detach(link)
    desk.commit()
    assert desk.send(desk.attach("c"), 1) == {"fresh": [1]}
    assert desk.send(desk.attach("d"), 1) == {"fresh": [1]}
    assert desk.send(desk.attach("e"), 1) == {"refused": [1]}
    assert list(desk.partition.producers) == ["a", "b"]
    desk.commit()
    assert list(desk.partition.producers) == ["c", "d"]


def test_no_producer_is_forgotten_when_the_commit_fails() -> None:
    desk = Desk(limit=1)
    link = desk.attach("a")
    desk.send(link, 1)
    desk.commit()
    desk.numbering.detach(link)
    desk.send(desk.attach("b"), 1)
    desk.commit(failing=True)
    assert list(desk.partition.producers) == ["a"]


def test_a_producer_that_was_away_for_too_long_is_forgotten_when_another_comes() -> None:
    desk = Desk(expiry_ms=DAY_MS)
    old, used = desk.attach("old"), desk.attach("used")
    desk.send(old, 1)
    desk.send(used, 1)
    desk.commit()
    desk.numbering.detach(old)
    desk.numbering.detach(old)
    desk.now_ms += 2 * DAY_MS
    desk.send(desk.attach("new"), 1)
    desk.commit()
    assert list(desk.partition.producers) == ["used", "new"]


# -- ids


@pytest.mark.parametrize("value", ["p", Symbol("p"), "é" * (PRODUCER_ID_BYTES_MAX // 2), "query/7"])
def test_an_id_is_any_short_text(value: Value) -> None:
    assert producer_id(value) == value


@pytest.mark.parametrize(
    "value", ["", "x" * (PRODUCER_ID_BYTES_MAX + 1), "é" * PRODUCER_ID_BYTES_MAX, 7, b"p", "\ud800"]
)
def test_an_invalid_producer_id_is_an_error(value: Value) -> None:
    with pytest.raises(PeerError, match=names.PRODUCER_ID):
        producer_id(value)


# -- whatever happens


class Sender:
    """A correct producer: it sends in order from the reported position, and failed events first, in order."""

    def __init__(self, desk: Desk, first: int) -> None:
        self.desk = desk
        self.link = desk.attach()
        self.todo = list(range(first, 30))
        self.waiting: dict[int, list[int]] = {}
        """The events with an outcome, by commit."""
        self.accepted: set[int] = set()

    def send(self, count: int) -> None:
        batch, self.todo = self.todo[:count], self.todo[count:]
        if batch:
            commit = self.desk.partition.queue.sequence
            told = self.desk.send(self.link, *batch)
            self.accepted.update(told.get("settled", ()))
            self.again(told.get("refused", ()))
            self.waiting.setdefault(commit - 1, []).extend(told.get("earlier", ()))
            self.waiting.setdefault(commit, []).extend([*told.get("fresh", ()), *told.get("current", ())])

    def committed(self, done: CommitDone) -> None:
        told = self.waiting.pop(done.sequence, [])
        if done.failures:
            self.again(told)
        else:
            self.accepted.update(told)

    def again(self, sequences: Sequence[int]) -> None:
        self.todo = sorted({*self.todo, *sequences})


@given(st.integers(0, 1 << 32))
def test_each_event_is_stored_once_and_in_order_also_after_failed_sends_and_new_epochs(seed: int) -> None:
    """Links attach and detach, commits fail, and processes crash: accepted events are stored, once and in
    order.
    """
    rng = random.Random(seed)
    desk = Desk()
    senders = [Sender(desk, 0)]

    def committed(done: CommitDone) -> None:
        for sender in senders:  # links are notified first, as the service does
            sender.committed(done)
        desk.numbering.committed(done)

    def step(*, failures: bool) -> None:
        chance = rng.random()
        if chance < 0.5:
            rng.choice(senders).send(rng.randint(1, 6))
        elif chance < 0.65:
            desk.store.commit()
        elif chance < 0.85:
            if failures and rng.random() < 0.3:
                desk.store.fail(desk.partition, FULL, stop=False)
            if desk.store.in_flight:
                desk.store.complete()
        elif chance < 0.95:  # a link goes, its events stay on their way; another comes
            gone = senders.pop(rng.randrange(len(senders)))
            desk.numbering.detach(gone.link)
            for _ in range(rng.choice([1, 1, 2]) if len(senders) < 3 else 0):
                reached = desk.partition.producers.get("p")
                senders.append(Sender(desk, rng.randint(0, 0 if reached is None else reached.sequence + 1)))
            senders[:] = senders or [Sender(desk, 0)]
        elif failures:  # a crash: what is not durable is lost, and no peer is notified
            desk.store.on_commit = lambda _done: None
            while desk.store.in_flight or desk.store.pending_bytes:
                desk.store.fail(desk.partition, FULL, stop=False)
                desk.store.commit()
                desk.store.complete()
            desk.numbering = Numbering(limit=100, expiry_ms=DAY_MS)
            desk.store.on_commit = committed
            senders[:] = [Sender(desk, 0)]

    desk.store.on_commit = committed
    for _ in range(80):
        step(failures=True)
        stored = desk.stored()
        assert stored == list(range(len(stored)))
        for sender in senders:
            assert all(sequence < len(stored) for sequence in sender.accepted)
    while any(sender.todo or any(sender.waiting.values()) for sender in senders):
        for sender in senders:
            sender.send(6)
        desk.commit() if desk.store.pending_bytes or desk.store.in_flight else None
    assert desk.stored() == list(range(30))


def test_producers_of_different_users_are_different_whatever_they_call_themselves() -> None:
    """Otherwise a user could send one high number under another's name, and the other's events would be
    accepted but not stored.
    """
    long = "p" * PRODUCER_ID_BYTES_MAX
    asked = [
        (None, "p"),
        ("alice", "p"),
        ("bob", "p"),
        (None, "alice\x1fp"),
        ("alice", long),
        ("bob", long),
        (None, long),
        ("a", "lice\x1fp"),
    ]
    stored = [stored_id(user, name) for user, name in asked]
    assert len(set(stored)) == len(asked)
    assert stored[0] == "p", "as in directories of before"
    assert stored[6] == long
    assert max(len(each.encode()) for each in stored) <= PRODUCER_ID_BYTES_MAX


def test_a_high_number_of_one_user_does_not_touch_another(desk: Desk) -> None:
    alice = desk.numbering.attach(desk.log, "p", None, user="alice")
    bob = desk.numbering.attach(desk.log, "p", None, user="bob")
    assert alice.home == bob.home
    assert desk.send(bob, (1 << 64) - 1) == {"fresh": [(1 << 64) - 1]}
    desk.commit()
    assert desk.send(alice, 0, 1) == {"fresh": [0, 1]}
