"""The order of reads that wait for Kafka: fair shares, and few jumps within them."""

from collections.abc import Hashable

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.kafka.reading import turns as deciding
from amqp_streams.kafka.reading.turns import AHEAD_BYTES, DEBT_BYTES, Position, Turns, Wanted
from amqp_streams.storage.ports import ReadRequest

P = "p"
KIB = 1 << 10


def wanted(owner: Hashable, at: int, place: Hashable = P) -> Wanted:
    return Wanted(ReadRequest(owner, lambda: None), place, at)


def added(turns: Turns, *reads: tuple[Hashable, int]) -> list[Wanted]:
    found = [wanted(owner, at) for owner, at in reads]
    for each in found:
        turns.add(each)
    return found


def chosen(turns: Turns, *positions: Position | None) -> tuple[int, Hashable, int, int]:
    """The index of the position, the owner, where the consumer begins, and the number that is wanted."""
    choice = turns.choose(positions or (None,))
    assert choice is not None
    index, read, start = choice
    return index, read.owner, start, read.at


def test_without_a_read_that_waits_nothing_is_chosen() -> None:
    turns = Turns()
    assert turns.choose([None]) is None
    [read] = added(turns, ("a", 1))
    turns.drop(read)
    turns.drop(read)
    assert (len(turns), turns.choose([None])) == (0, None)


def test_the_owner_that_got_the_least_is_next_whoever_came_first() -> None:
    turns = Turns()
    added(turns, ("a", 1), ("b", 2), ("c", 3))
    turns.brought("a", 100)
    turns.brought("b", 200)
    turns.brought("c", 50)
    assert [chosen(turns)[1] for _ in range(3)] == ["c", "a", "b"]


def test_an_owner_with_many_reads_gets_no_more_than_one_with_one() -> None:
    turns = Turns()
    added(turns, *(("many", number) for number in range(10)), ("one", 5000))
    order = []
    while len(turns):
        _, owner, _, at = chosen(turns)
        turns.brought(owner, 100)
        order.append(owner)
        if owner == "one" and at < 5003:
            added(turns, ("one", at + 1))
    assert order[:8].count("one") == 4


def test_what_is_read_for_an_owner_counts_once_and_what_it_takes_besides_counts_as_well() -> None:
    turns = Turns()
    turns.brought("a", 100)
    turns.took("a", 60)
    turns.took("a", 40)
    turns.brought("b", 100)
    turns.took("b", 101)
    turns.brought("c", 100)
    turns.brought("c", -1)
    added(turns, ("b", 1), ("a", 2), ("c", 3))
    assert [chosen(turns)[1] for _ in range(3)] == ["c", "a", "b"]


def test_a_consumer_reads_what_is_nearest_after_its_position() -> None:
    turns = Turns()
    added(turns, ("a", 10), ("b", 500), ("c", 700), ("d", 1500))
    position = Position(P, 480, skip=1000)
    assert chosen(turns, None, position) == (1, "b", 480, 500)
    assert chosen(turns, None, position) == (1, "c", 480, 700)
    assert chosen(turns, position) == (0, "a", 10, 10), "d is too far away, and a came first"
    added(turns, ("e", 490))
    assert chosen(turns, Position("other", 480, 1000)) == (0, "d", 1500, 1500)


def test_an_owner_that_got_much_more_than_another_waits_although_it_is_near() -> None:
    turns = Turns()
    added(turns, ("greedy", 100), ("poor", 90_000))
    turns.brought("greedy", AHEAD_BYTES + 1)
    assert chosen(turns, Position(P, 100, 10))[1] == "poor"
    turns.brought("poor", 2)
    added(turns, ("poor", 90_001))
    assert chosen(turns, Position(P, 100, 10)) == (0, "greedy", 100, 100)


def test_reads_of_numbers_that_were_brought_are_removed_together() -> None:
    turns = Turns()
    reads = added(turns, ("a", 10), ("b", 20), ("c", 20), ("d", 29), ("e", 30))
    other = wanted("f", 20, "other")
    turns.add(other)
    assert turns.covered(P, 20, 30, 2) == reads[1:3]
    assert turns.covered(P, 20, 30, 2) == reads[3:4]
    assert turns.covered("unknown", 20, 30, 2) == []
    assert len(turns) == 3


def test_an_owner_that_comes_late_does_not_stop_the_others_until_it_has_caught_up() -> None:
    turns = Turns()
    for number in range(100):
        added(turns, ("early", number))
        turns.brought(chosen(turns)[1], 100 * KIB)
    order = []
    added(turns, ("early", 1000), ("late", 2000))
    for _ in range(10):
        _, owner, _, at = chosen(turns)
        order.append(owner)
        turns.brought(owner, 100 * KIB)
        added(turns, (owner, at + 1))
    assert 4 <= order.count("late") <= 6


def test_an_owner_that_read_much_from_memory_waits_for_a_bounded_time() -> None:
    turns = Turns()
    turns.took("lucky", 1 << 40)
    added(turns, ("lucky", 1), ("other", 2))
    rounds = 0
    while chosen(turns)[1] != "lucky":
        turns.brought("other", 512 * KIB)
        added(turns, ("other", 2))
        rounds += 1
    assert rounds <= DEBT_BYTES // (512 * KIB) + 1


def test_owners_that_come_and_go_leave_nothing_behind() -> None:
    turns = Turns()
    added(turns, ("stays", 0))
    for number in range(20 * deciding._IDLE_OWNERS):
        [read] = added(turns, (number, number))
        turns.brought(number, 1)
        turns.took(number, 2)
        turns.drop(read)
    assert len(turns) == 1
    kept = (turns._got, turns._paid, turns._order, turns._entries, turns._places, turns._owners)
    assert all(len(each) <= deciding._IDLE_OWNERS + 3 for each in kept)
    assert chosen(turns)[1] == "stays"


@given(
    st.lists(st.integers(0, 3000), min_size=2, max_size=12),
    st.lists(st.integers(0, 3000), min_size=1, max_size=4),
    st.integers(0, 600),
    st.integers(1, 4),
)
def test_owners_that_always_wait_get_shares_that_differ_by_a_constant(
    starts: list[int], consumers: list[int], skip: int, several: int
) -> None:
    """Wherever they are, wherever the consumers are, and however many reads an owner has."""
    turns, size = Turns(), 512 * KIB
    got = dict.fromkeys(range(len(starts)), 0)
    for owner, at in enumerate(starts):
        for number in range(several if owner == 0 else 1):
            turns.add(wanted(owner, at + number))
    positions: list[Position | None] = [Position(P, at, skip) for at in consumers]
    for _ in range(60 * len(starts)):
        choice = turns.choose(positions)
        assert choice is not None
        index, read, start = choice
        assert start <= read.at <= start + skip
        assert isinstance(read.owner, int)
        got[read.owner] += size
        turns.brought(read.owner, size)
        positions[index] = Position(P, read.at + 5, skip)
        turns.add(wanted(read.owner, read.at + 5))
        assert max(got.values()) - min(got.values()) <= AHEAD_BYTES + 2 * size
