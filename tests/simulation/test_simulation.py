"""Seeded runs of a whole node: under any faults, no accepted event is lost, and in the calm period everything
completes.

Each group of seeds is a test, so that several processes share them. A failure prints the command that repeats
it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.machine.budget import EndlessError
from tests.simulation.machine.schedule import CALLS_MAX, Schedule
from tests.simulation.runner import SEEDS_A_TEST, TESTS, Tally, failure_of, many, run
from tests.simulation.world import World

FAILED_ONCE = (
    *(
        546,
        906,
        1218,
        5732,
        14931,
        17283,
        19490,
        19828,
        31438,
        32234,
        35636,
        36809,
        39434,
        40374,
        48985,
        50218,
        68723,
        81324,
        87624,
    ),
    100071,
    120487,
    133981,
)


@pytest.mark.parametrize("group", range(TESTS))
def test_no_accepted_event_is_lost_under_any_failure_and_everything_is_processed_afterwards(
    group: int,
) -> None:
    failures = [
        words
        for seed in range(group * SEEDS_A_TEST, (group + 1) * SEEDS_A_TEST)
        if (words := failure_of(seed)) is not None
    ]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_a_seed_that_failed_once_passes(seed: int) -> None:
    assert failure_of(seed) is None


def test_a_run_that_does_not_end_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_end(_world: World) -> None:
        while True:
            try:
                sum(range(1000))
            except Exception:  # noqa: BLE001  a node catches exceptions in many places
                continue

    monkeypatch.setattr(World, "produce", without_end)
    _, error = run(1, cpu_s=0.2)
    assert isinstance(error, EndlessError)


def test_a_run_whose_time_stands_still_is_a_failure() -> None:
    schedule = Schedule()

    def again() -> None:
        schedule.after(0, again)

    again()
    with pytest.raises(AssertionError, match=f"makes {CALLS_MAX} calls until 0 us"):
        schedule.run(1)


def test_a_seed_is_the_same_run_in_each_process() -> None:
    """Neither the addresses of objects nor the hashes of texts affect a run."""
    script = (
        "from tests.simulation.runner import run\n"
        "for seed in (3, 4, 7): print(seed, run(seed, stories=True)[0].digest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashes in ("1", "2")
    }
    assert len(digests) == 1


def test_a_long_run_can_be_spread_over_calls_and_counts_as_one(tmp_path: Path) -> None:
    whole = Tally(40, 40)
    assert many(whole, 4, jobs=1) == 0
    state = tmp_path / "seeds.json"
    for count in (1, 1, 4):
        assert many(Tally.load(state, 40), count, jobs=1) == 0
    spread = Tally.load(state, 40)
    assert (spread.first, spread.next, spread.counts) == (40, 44, whole.counts)
