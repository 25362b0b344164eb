"""Seeded runs of several nodes on a model of Kafka: the laws of homes hold under any faults, and a fault that
is planted is found.
"""

from collections import Counter

import pytest

from amqp_streams.homes.changing import sweeping
from amqp_streams.homes.serving import Serving
from tests.simulation.homes.changing import ChangingWorld
from tests.simulation.homes.faults import FAULTS
from tests.simulation.homes.peers import INCARNATION
from tests.simulation.homes.world import World
from tests.simulation.runner import Tally, failure_of, many

TESTS = 8
SEEDS_A_TEST = 25
SEEDS_A_FAULT = 60
CHANGING_SEEDS = 25


@pytest.mark.parametrize("group", range(TESTS))
def test_the_laws_of_homes_hold_under_any_faults(group: int) -> None:
    seeds = range(group * SEEDS_A_TEST, (group + 1) * SEEDS_A_TEST)
    failures = [words for seed in seeds if (words := failure_of(seed, "homes")) is not None]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    plant, seed, harsh = FAULTS[name]
    with plant():
        # First where it was found before; a change of the simulation may move it elsewhere.
        runs = [(seed, harsh), *((each, bool(each % 2)) for each in range(SEEDS_A_FAULT))]
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
    counts = sum((counted(seed) for seed in range(20)), start=World(0).counts())
    assert not {"delivered", "confirmed", "homes", "let go", "closed", "stopped in a write"} - counts.keys()


def counted(seed: int) -> Counter[str]:
    world = World(seed)
    world.run()
    return world.counts()


def test_the_runner_counts_the_runs_of_homes(capsys: pytest.CaptureFixture[str]) -> None:
    assert many(Tally(0, 0), 2, 1, "homes") == 0
    assert "seeds 0 to 1: 0 failed" in capsys.readouterr().out


@pytest.mark.parametrize("rolls", [False, True])
def test_changes_and_deleted_logs_keep_the_laws_also_while_nodes_are_upgraded(
    rolls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In a topic of Kafka, an incarnation is longer.
    monkeypatch.setattr(sweeping, "INCARNATION_CHARACTERS", len(INCARNATION))
    counts: Counter[str] = Counter()
    for seed in range(CHANGING_SEEDS):
        world = ChangingWorld(seed, rolls=rolls)
        try:
            world.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        counts += world.counts()
    assert {"removed", "asked 204", "asked 409", "shown", "listed", "listed in part"} <= counts.keys()
    assert counts["listed at the end"] > CHANGING_SEEDS
    assert not rolls or counts["asked 501"]


def test_a_list_that_shows_owners_without_a_grant_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Serving, "granted", lambda _serving, _link: True)
    monkeypatch.setattr(sweeping, "INCARNATION_CHARACTERS", len(INCARNATION))
    for seed in range(CHANGING_SEEDS):
        try:
            ChangingWorld(seed).run()
        except AssertionError as error:
            assert str(error).startswith("shown")  # noqa: PT017  any other law would be a fault
            return
    raise AssertionError("the fault was not found")
