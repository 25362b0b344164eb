"""Runs cut to the size of record batches."""

from array import array
from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_connector.rows.runs import Run, bytes_in, sized


def runs_of(sizes: list[list[int]]) -> list[Run]:
    found, at = [], 0
    for entry in sizes:
        numbers = range(at, at + len(entry))
        found.append(
            Run(
                array("Q", numbers),
                array("q", [10 * one for one in numbers]),
                pa.array([bytes(size) for size in entry], pa.binary()),
            )
        )
        at += len(entry)
    return found


@given(
    st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=30), max_size=12),
    st.integers(1, 40),
    st.integers(1, 300),
)
def test_events_stay_in_order_and_batches_within_their_limits(
    sizes: list[list[int]], rows_max: int, bytes_max: int
) -> None:
    given_runs = runs_of(sizes)
    found = list(sized(given_runs, rows_max, bytes_max))
    total = sum(map(len, sizes))
    assert [number for run in found for number in run.offsets] == list(range(total))
    assert [moment for run in found for moment in run.timestamps_ms] == [
        10 * number for number in range(total)
    ]
    assert [message for run in found for message in run.messages.to_pylist()] == [
        message for run in given_runs for message in run.messages.to_pylist()
    ]
    for run in found:
        assert len(run.offsets) == len(run.timestamps_ms) == len(run.messages)
        assert 1 <= len(run.messages) <= rows_max
        assert bytes_in(run.messages) <= bytes_max or len(run.messages) == 1
    for one, following in pairwise(found):
        full = len(one.messages) == rows_max
        assert (
            full
            or bytes_in(one.messages) + len(following.messages[0].as_py()) > bytes_max
            or bytes_in(one.messages) >= bytes_max
        )
