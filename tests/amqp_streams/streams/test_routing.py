"""Keys stay where they are, names name partitions, and turns are dealt evenly."""

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.streams.routing import RUN_MIN, SPREAD_MAX, RoundRobin, partition_index, partition_of_key


@given(st.text(alphabet=st.characters(codec="utf-8")), st.integers(1, 1024))
def test_a_key_goes_where_crc32_of_its_utf8_bytes_says(key: str, count: int) -> None:
    """The hash is part of the outside contract: other programs compute it."""
    assert partition_of_key(key, count) == crc32(key.encode()) % count


def test_known_keys_always_go_to_known_partitions() -> None:
    """Changing the hash would tear every keyed log in two."""
    assert [partition_of_key(key, 4) for key in ("", "2010-01-01", "sensor-7", "Zürich")] == [0, 0, 2, 2]


@given(st.integers(1, 1024), st.integers(0, 2000))
def test_the_numbers_below_the_count_are_the_names(count: int, index: int) -> None:
    assert partition_index(str(index), count) == (index if index < count else None)


@given(st.text(max_size=6), st.integers(1, 1024))
def test_each_partition_has_one_name_only(name: str, count: int) -> None:
    """No leading zeros, signs, blanks or digits of other scripts: an identifier is compared, not
    calculated.
    """
    index = partition_index(name, count)
    assert index is None or str(index) == name


@given(
    st.lists(st.integers(0, 50), max_size=20),
    st.lists(st.integers(0, 1023), min_size=1, max_size=9, unique=True),
)
def test_turns_are_dealt_evenly_whatever_the_batches(batches: list[int], partitions: list[int]) -> None:
    dealer = RoundRobin()
    got = dict.fromkeys(partitions, 0)
    for count in batches:
        for index, share in dealer.deal(count, partitions):
            got[index] += len(range(count)[share])
    assert sum(got.values()) == sum(batches)
    assert max(got.values()) - min(got.values()) <= 1


@given(st.integers(0, 500), st.integers(1, 100))
def test_each_event_of_a_batch_is_dealt_once(count: int, width: int) -> None:
    shares = RoundRobin().deal(count, range(width))
    assert sorted(index for _, share in shares for index in range(count)[share]) == list(range(count))
    assert all(len(range(count)[share]) for _, share in shares), "who gets nothing is left out"


def test_the_round_continues_where_the_last_batch_ended() -> None:
    dealer = RoundRobin()
    assert dealer.deal(2, [5, 6, 7]) == [(5, slice(0, 2, 3)), (6, slice(1, 2, 3))]
    assert [index for index, _ in dealer.deal(2, [5, 6, 7])] == [7, 5]


def test_a_large_batch_on_many_partitions_is_dealt_in_runs() -> None:
    """The cost of a piece of a batch for a partition does not decrease with the size of the piece."""
    dealer, width, got = RoundRobin(), 64, dict.fromkeys(range(64), 0)
    for _ in range(8):
        shares = dealer.deal(512, range(width))
        assert len(shares) == SPREAD_MAX
        for index, share in shares:
            assert share.step is None, "neighbours stay together"
            got[index] += len(range(512)[share])
    assert set(got.values()) == {2 * 512 // SPREAD_MAX}, "over a few batches, each partition gets the same"


@pytest.mark.parametrize("count", [SPREAD_MAX + 1, 700, 5000])
def test_a_batch_touches_few_partitions_however_many_the_log_has(count: int) -> None:
    shares = RoundRobin().deal(count, range(1024))
    assert len(shares) <= SPREAD_MAX


@pytest.mark.parametrize("count", [17, 40, 63, 64, 100, 500, 5000])
def test_the_runs_of_a_batch_are_about_the_same(count: int) -> None:
    """Otherwise batches of one size would always give some partitions more than others."""
    sizes = [len(range(count)[share]) for _, share in RoundRobin().deal(count, range(64))]
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) < len(sizes) <= SPREAD_MAX
    assert len(sizes) == 1 or min(sizes) >= RUN_MIN - len(sizes)


def test_many_partitions_get_the_same_from_batches_smaller_than_their_number() -> None:
    dealer, width, got = RoundRobin(), 1024, dict.fromkeys(range(1024), 0)
    for _ in range(2 * width // SPREAD_MAX):
        for index, share in dealer.deal(512, range(width)):
            got[index] += len(range(512)[share])
    assert set(got.values()) == {2 * 512 // SPREAD_MAX}


def test_a_small_batch_is_dealt_one_event_to_each_partition() -> None:
    shares = RoundRobin().deal(SPREAD_MAX, range(1024))
    assert [index for index, _ in shares] == list(range(SPREAD_MAX))
