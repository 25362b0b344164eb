"""The disk during an attack: when two measurements cannot be compared."""

import asyncio
import os
from pathlib import Path

from attack.disk import DISK, NOISE_MS, RATIO_MAX, Syncs, has_paused, writes_more
from attack.neighbour import Measured
from bench.process import written_bytes


def syncs(ms: float) -> dict[str, Measured]:
    return {DISK: Measured((ms,) * 100)}


def test_a_disk_that_is_slower_in_one_of_two_measurements_makes_them_incomparable() -> None:
    slow = 10.0 * RATIO_MAX + NOISE_MS
    assert has_paused(syncs(10.0), syncs(slow), writes=False)
    assert has_paused(syncs(slow), syncs(10.0), writes=False)
    assert not has_paused(syncs(10.0), syncs(10.0 * RATIO_MAX), writes=False)
    assert not has_paused({}, {}, writes=False)


def test_a_disk_that_the_attack_made_slower_is_no_excuse() -> None:
    assert not has_paused(syncs(10.0), syncs(100.0), writes=True)
    assert writes_more(1 << 20, 4.0, 8 << 20, 5.0)
    assert not writes_more(1 << 20, 4.0, 3 << 20, 5.0)


def test_each_sync_appends_a_record_and_no_file_is_left(tmp_path: Path) -> None:
    with Syncs(tmp_path) as here:
        for _ in range(3):
            asyncio.run(here.one())
        assert here.size == 3 * 512
    assert list(tmp_path.iterdir()) == []


def test_the_bytes_of_a_process_are_counted_and_those_of_none_are_zero() -> None:
    assert written_bytes(os.getpid()) >= 0
    assert written_bytes(1 << 30) == 0
