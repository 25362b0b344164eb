"""Seeded runs of idempotent producers on a model of Kafka: their laws hold under any faults, and a fault that
is planted is found.
"""

from collections import Counter

import pytest

from tests.simulation.numbered.faults import FAULTS
from tests.simulation.numbered.world import World
from tests.simulation.runner import failure_of

TESTS = 4
SEEDS_A_TEST = 15
SEEDS_A_FAULT = 60


@pytest.mark.parametrize("group", range(TESTS))
def test_the_laws_of_idempotent_producers_hold_under_any_faults(group: int) -> None:
    seeds = range(group * SEEDS_A_TEST, (group + 1) * SEEDS_A_TEST)
    failures = [words for seed in seeds if (words := failure_of(seed, "numbered")) is not None]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    plant, seed, harsh = FAULTS[name]
    with plant():
        # First where it was found before; a change of the simulation may move it elsewhere.
        runs = [(seed, harsh), *((each, not each % 2) for each in range(SEEDS_A_FAULT))]
        assert any(breaks_a_law(each, harsh=style) for each, style in runs)


def breaks_a_law(seed: int, *, harsh: bool) -> bool:
    try:
        World(seed, harsh=harsh).run()
    except AssertionError:
        return True
    return False


def test_a_seed_gives_the_same_run_each_time() -> None:
    one, two = World(11, stories=True), World(11, stories=True)
    one.run()
    two.run()
    assert one.story == two.story
    assert one.counts() == two.counts()


def test_what_happens_in_a_run_is_what_the_laws_are_about() -> None:
    counts = sum((counted(seed) for seed in range(20)), start=Counter[str]())
    assert not {"accepted", "refused", "stolen", "closed", "forgotten"} - counts.keys()


def counted(seed: int) -> Counter[str]:
    world = World(seed, harsh=bool(seed % 2))
    world.run()
    return world.counts()
