"""The judgement of the mixed run."""

from collections import Counter

from bench.scale.crowd import Crowd
from bench.scale.mixed import (
    GROWTH_BYTES_MAX,
    PARTITIONS,
    Plan,
    World,
    growth,
    missing,
    more_files,
    out_of_order,
)


def test_an_accepted_event_without_a_delivery_is_missed() -> None:
    world, crowd = World(Plan()), Crowd()
    world.posted = {"1": {"a", "b", "c"}}
    crowd.came = {"1": Counter({"a": 1}), "dead-1": Counter({"b": 1})}
    (words,) = missing(world, crowd)
    assert "1 of 3" in words
    assert "c" in words


def test_each_group_has_to_get_every_event_of_its_partition() -> None:
    world = World(Plan())
    world.appended[1] = {1, 5, 9}
    world.read = {1: [1, 5, 9], 1 + PARTITIONS: [1, 9]}
    (words,) = missing(world, Crowd())
    assert f"group {1 + PARTITIONS}" in words


def test_repetition_is_allowed_and_disorder_is_not() -> None:
    assert not out_of_order([1, 2, 3, 2, 3, 4])
    assert out_of_order([1, 3, 2])


def test_memory_that_grows_from_period_to_period_is_found() -> None:
    flat = [100_000_000] * 12
    assert growth(flat) is None
    assert growth([at + number * GROWTH_BYTES_MAX for number, at in enumerate(flat)]) is not None
    assert growth([500_000_000, 400_000_000, *flat]) is None


def test_descriptors_that_are_not_given_back_are_found() -> None:
    flat = [500, 600, 30, 700, 25, 600, 30, 650, 40]
    assert more_files(flat) is None
    assert more_files([20, 30, *range(100, 2000, 200)]) is not None
