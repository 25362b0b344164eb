"""Partitions move only towards an even distribution, and no more than necessary."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.streams.groups.balance import Free, Move, choose, moves

MEMBERS = "abcdef"


def free(partition: int, *, reserved: bool = False, owned_last: bool = False, links: int = 0) -> Free:
    return Free(partition, reserved, owned_last, links)


def test_nothing_free_gives_nothing() -> None:
    assert choose([]) is None


def test_a_member_gets_what_was_freed_for_it_then_what_it_had_then_the_least_used_then_the_first() -> None:
    assert choose([free(0), free(1, links=0, owned_last=True), free(2, reserved=True, links=9)]) == 2
    assert choose([free(0), free(1, links=5, owned_last=True)]) == 1
    assert choose([free(0, links=1), free(1), free(2)]) == 1


def test_the_richest_gives_to_the_poorest_what_it_took_last() -> None:
    assert moves({"a": 4, "b": 2}, {"c": 1}, {"a": [7, 1], "b": [3]}) == [Move(7, "a", "c")]


def test_a_member_with_one_more_keeps_it() -> None:
    assert moves({"a": 2, "b": 1}, {"b": 1}, {"a": [0, 1]}) == []


def test_no_reader_gets_more_than_it_asks_for() -> None:
    assert moves({"a": 8}, {"b": 2}, {"a": list(range(8))}) == [Move(0, "a", "b"), Move(1, "a", "b")]
    assert moves({"a": 8}, {"b": 0}, {"a": list(range(8))}) == []


def test_of_equally_poor_members_the_longest_waiting_is_served_first() -> None:
    assert moves({"a": 2}, {"z": 1, "b": 1}, {"a": [0, 1]}) == [Move(0, "a", "z")]


@given(
    held=st.lists(st.sampled_from(MEMBERS), max_size=24),
    fixed=st.sets(st.integers(0, 23)),
    wanted=st.dictionaries(st.sampled_from(MEMBERS), st.integers(0, 10)),
)
def test_moves_make_the_spread_as_even_as_demand_and_fixed_partitions_allow(
    held: list[str], fixed: set[int], wanted: dict[str, int]
) -> None:
    loads = Counter(held)
    movable = {
        member: [
            partition for partition, owner in enumerate(held) if owner == member and partition not in fixed
        ]
        for member in set(held)
    }
    decided = moves(loads, wanted, movable)
    given_ = Counter(move.giver for move in decided)
    taken = Counter(move.taker for move in decided)
    after = {member: loads[member] + taken[member] - given_[member] for member in {*loads, *wanted}}
    assert len({move.partition for move in decided}) == len(decided)
    assert all(held[move.partition] == move.giver and move.partition not in fixed for move in decided)
    assert all(taken[member] <= wanted.get(member, 0) for member in after)
    assert not set(given_) & set(taken), "nobody gives and takes"
    for taker in (member for member, count in wanted.items() if taken[member] < count):
        for giver in (member for member, partitions in movable.items() if given_[member] < len(partitions)):
            assert after[giver] - after[taker] <= 1, "what could have made it more even was done"
