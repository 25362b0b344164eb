"""Seeded runs of whole gateways in virtual time: under any faults, every accepted event is delivered or its
end is recorded, and everything that can progress does.

`SIM_GATEWAY_SEEDS` runs this many seeds, `SIM_GATEWAY_SEED` a single one. The name of a failed test contains
its seed. With `PYTHONHASHSEED=0`, as `make simgateway` sets it, a seed repeats exactly.
"""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.memory_folders import folder_in_memory
from tests.simulation_gateway.run import run

QUICK = (0, 3, 4, 5, 7, 9, 11, 12, 13, 14, 15, 16, 19, 20, 22, 26, 29)
"""Seeds of short runs, for `make test`, with at least one world of each `Kind`."""
SEEDS = (
    [int(os.environ["SIM_GATEWAY_SEED"])]
    if os.environ.get("SIM_GATEWAY_SEED")
    else range(int(os.environ["SIM_GATEWAY_SEEDS"]))
    if os.environ.get("SIM_GATEWAY_SEEDS")
    else QUICK
)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A directory for the state databases: in memory, where the machine has such a file system."""
    with folder_in_memory(tmp_path) as folder:
        yield folder
    gc.collect()


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_befalls_a_gateway_every_promise_is_kept(seed: int, memory: Path) -> None:
    ledger = run(seed, memory)
    assert ledger.counts["stored"] > 0
    assert ledger.counts["attempts t"] > 0


def test_a_seed_repeats_exactly(memory: Path) -> None:
    """Else a failure could not be looked into."""
    first, second = (run(11, memory / name).trace for name in ("first", "second"))
    assert first == second


def test_no_callback_holds_up_the_others(memory: Path) -> None:
    """Calls are counted, not time: a slow machine does not matter."""
    run(10, memory, counted=True)
