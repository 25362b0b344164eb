"""The judgement of a long run."""

import pytest

from bench.process import Usage
from bench.soak import DISK_BYTES_MAX, GROWTH_BYTES_MAX, Sample, complaints, growth


def samples(*, per_sample_bytes: int = 0, per_sample_files: int = 0, disk_bytes: int = 0) -> list[Sample]:
    return [
        Sample(
            float(number),
            number,
            Usage(0.0, 0, 50_000_000 + number * per_sample_bytes, 0, 20 + number * per_sample_files, 2),
            disk_bytes,
        )
        for number in range(120)
    ]


def test_a_flat_run_has_no_complaint() -> None:
    assert complaints(samples()) == []


@pytest.mark.parametrize(
    ("run", "word"),
    [
        (samples(per_sample_bytes=GROWTH_BYTES_MAX // 30), "memory"),
        (samples(per_sample_files=1), "files"),
        (samples(disk_bytes=DISK_BYTES_MAX + 1), "data directory"),
    ],
)
def test_a_run_that_grows_is_told_apart(run: list[Sample], word: str) -> None:
    (complaint,) = complaints(run)
    assert word in complaint


def test_growth_leaves_the_warm_up_out() -> None:
    assert growth([0.0] * 25 + [100.0] * 75) == 0.0


def test_a_series_too_short_does_not_grow() -> None:
    assert growth([1.0, 2.0]) == 0.0
