"""States in memory: the last value of each key, and bounds that hold."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.kafka.sharing.followed import KEY_OVERHEAD, FollowedStates

CHANGES = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from("abcdef"), st.none() | st.binary(max_size=9)), max_size=40
)


@given(CHANGES)
def test_the_values_are_those_of_the_last_records(changes: list[tuple[int, str, bytes | None]]) -> None:
    states = FollowedStates(2)
    wanted: list[dict[str, bytes]] = [{}, {}]
    for position, (bucket, key, value) in enumerate(changes, 1):
        states.apply(bucket, [(key, value)], position)
        wanted[bucket].pop(key, None)
        if value is not None:
            wanted[bucket][key] = value
        assert states.buckets[bucket].position == position
    assert [each.values for each in states.buckets] == wanted
    sizes = [
        sum(len(key) + len(value) + KEY_OVERHEAD for key, value in each.values.items())
        for each in states.buckets
    ]
    assert [each.size for each in states.buckets] == sizes
    assert states.size == sum(sizes)


@given(CHANGES)
def test_no_bound_is_exceeded(changes: list[tuple[int, str, bytes | None]]) -> None:
    states = FollowedStates(2, keys_max=3, bytes_max=3 * KEY_OVERHEAD, all_bytes_max=4 * KEY_OVERHEAD)
    for position, (bucket, key, value) in enumerate(changes, 1):
        states.apply(bucket, [(key, value)], position)
        assert len(states.buckets[bucket].values) <= 3
        assert states.buckets[bucket].size <= 3 * KEY_OVERHEAD
        assert states.size <= 4 * KEY_OVERHEAD


def test_a_bucket_that_is_full_costs_itself_only_and_says_why() -> None:
    states = FollowedStates(2, keys_max=2)
    states.apply(1, [("other", b"kept")], 1)
    states.apply(0, [("a", b""), ("b", b""), ("c", b"")], 3)
    assert states.buckets[0].full == "it has 3 keys (at most 2)"
    assert not states.buckets[0].values
    states.apply(0, [("a", None)], 4)
    assert (states.buckets[0].position, states.buckets[0].values) == (4, {})
    assert states.buckets[1].values == {"other": b"kept"}


def test_a_full_bucket_that_is_read_again_has_its_values() -> None:
    states = FollowedStates(1, bytes_max=1000)
    states.apply(0, [("a", b"x" * 2000)], 1)
    assert states.buckets[0].full.startswith("it needs 2201 bytes")
    states.clear(0)
    states.apply(0, [("a", b"small")], 2)
    assert (states.buckets[0].full, states.buckets[0].values) == ("", {"a": b"small"})
    assert states.size == states.buckets[0].size


def test_what_all_buckets_need_together_is_bounded() -> None:
    states = FollowedStates(3, all_bytes_max=3 * KEY_OVERHEAD)
    for bucket in range(3):
        states.apply(bucket, [("key", b"")], 1)
    assert [bool(each.full) for each in states.buckets] == [False, False, True]
    assert "all buckets together" in states.buckets[2].full
