"""The rows of tasks: missing events are reported or fail the query, at planning and while reading."""

import logging
import pickle
from array import array
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition

from amqp_streams.client import Event
from spark_connector import reading
from spark_connector.errors import DataLossError, NodeError, OffsetError, StreamNotFoundError
from spark_connector.node import requests
from spark_connector.options.settings import ReadOptions, read_options
from spark_connector.planning.holdings import Held, LogState
from spark_connector.planning.offsets import Edge
from spark_connector.planning.ranges import OffsetRange
from spark_connector.reading import RangesPartition, gaps, numbers, rows
from spark_connector.rows.runs import Run
from spark_connector.rows.schema import chosen

WANTED = OffsetRange("temps", 3, 10, 20, "i")


def options(**given: str) -> ReadOptions:
    return read_options({"endpoint": "amqp://127.0.0.1:1", "stream": "temps", **given}, streaming=False)


def run(*offsets: int) -> Run:
    messages = pa.array([Event(b"x").encode()] * len(offsets), pa.binary())
    return Run(array("Q", offsets), array("q", [0] * len(offsets)), messages)


def served(
    monkeypatch: pytest.MonkeyPatch,
    *found: Run | Exception,
    earliest: int = 0,
    held: Held | None = None,
) -> None:
    """The node gives these runs of any range."""

    def read(*_: object) -> Iterator[Run]:
        for one in found:
            if isinstance(one, Exception):
                raise one
            yield one

    monkeypatch.setattr(requests, "read", read)
    monkeypatch.setattr(
        requests, "available", lambda *_, **__: {"temps": LogState("i", {3: held or Held(earliest, 100)})}
    )


def read(given: ReadOptions, *wanted: OffsetRange, columns: str = "offset,body") -> list[int]:
    schema = chosen({"columns": columns})
    return [
        row["offset"] for batch in rows(given, schema, RangesPartition(wanted)) for row in batch.to_pylist()
    ]


@given(st.sets(st.integers(0, 40), min_size=1), st.integers(0, 10))
def test_gaps_are_the_offsets_that_are_missing(numbers_there: set[int], before: int) -> None:
    offsets = sorted(number + before for number in numbers_there)
    found = gaps(run(*offsets), 0)
    assert [number for low, high in found for number in range(low, high)] == sorted(
        set(range(offsets[-1])) - set(offsets)
    )


@pytest.mark.parametrize(
    ("held", "there", "words"),
    [
        (Held(0, 100), range(10, 20), ""),
        (Held(14, 100), range(14, 20), "offsets 10 to 14: retention has removed them .* 4 events lost"),
        (Held(90, 100), (), "offsets 10 to 20: retention has removed them .* 10 events lost"),
        (Held(0, 13), range(10, 13), "offsets 13 to 20: the log has no more events .* 7 events lost"),
        (None, (), "offsets 10 to 20: the log was deleted, and perhaps recreated"),
    ],
)
def test_columns_of_the_place_need_no_events_and_lose_none_unseen(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    held: Held | None,
    there: range,
    words: str,
) -> None:
    served(monkeypatch, RuntimeError("the node is not asked for events"))
    incarnation = {"temps": LogState("i" if held else "other", {3: held or Held(0, 100)})}
    monkeypatch.setattr(requests, "available", lambda *_, **__: incarnation)
    if words:
        with pytest.raises(DataLossError, match=f"log 'temps', partition 3: {words}"):
            read(options(), WANTED, columns="stream,partition,offset")
    with caplog.at_level(logging.WARNING):
        found = read(options(failOnDataLoss="false", batchRows="4"), WANTED, columns="offset")
    assert found == list(there)
    assert len(caplog.records) == bool(words)


def test_a_filter_needs_the_events_whatever_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    served(monkeypatch, run(11, 15))
    assert read(options(filter="a = 1"), WANTED, columns="offset") == [11, 15]


def test_all_existing_events_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    served(monkeypatch, run(*range(10, 15)), run(*range(15, 20)))
    assert read(options(), WANTED, replace(WANTED, partition=4)) == [*range(10, 20), *range(10, 20)]


@pytest.mark.parametrize(
    ("found", "there", "words"),
    [
        (
            [run(14, 15, 16, 17, 18, 19)],
            range(14, 20),
            "offsets 10 to 14: retention has removed them since this was planned; .* 4 events lost",
        ),
        ([run(10, 11), run(19)], (10, 11, 19), "offsets 12 to 19: .* 7 events lost"),
        ([run(10, 11, 18, 19)], (10, 11, 18, 19), "offsets 12 to 18"),
        (
            [run(10, 11)],
            (10, 11),
            "offsets 12 to 20: the log has no more events in this range; .* available offsets 0 to 100",
        ),
        ([], (), "offsets 10 to 20: the log has no more"),
        (
            [run(10), StreamNotFoundError("recreated")],
            (10,),
            "offsets 11 to 20: the log was deleted, and perhaps recreated, .*recreated",
        ),
    ],
)
def test_missing_events_fail_or_are_counted(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    found: list[Run | Exception],
    there: range,
    words: str,
) -> None:
    served(monkeypatch, *found)
    with pytest.raises(DataLossError, match=f"log 'temps', partition 3: {words}"):
        read(options(), WANTED)
    with caplog.at_level(logging.WARNING):
        assert read(options(failOnDataLoss="false"), WANTED) == list(there)
    [record] = caplog.records
    assert record.getMessage().startswith("data_lost log 'temps', partition 3: offsets")


GAPPY = Held(0, 100, 0, gaps=True)


@pytest.mark.parametrize("columns", ["offset,body", "offset"])
def test_gaps_of_a_partition_that_has_gaps_are_not_losses(
    monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    served(monkeypatch, run(10, 13), run(15), held=GAPPY)
    assert read(options(), WANTED, columns=columns) == [10, 13, 15]


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (replace(GAPPY, earliest=12), "offsets 10 to 12: retention has removed them, perhaps before"),
        (replace(GAPPY, next=17), "offsets 17 to 20: the log has no more events in this range"),
    ],
)
def test_what_a_partition_with_gaps_does_not_hold_any_more_is_a_loss(
    monkeypatch: pytest.MonkeyPatch, held: Held, words: str
) -> None:
    served(monkeypatch, run(12, 15), held=held)
    with pytest.raises(DataLossError, match=words):
        read(options(), WANTED)


def test_a_range_of_gaps_has_no_events_and_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    served(monkeypatch, held=GAPPY)
    assert read(options(), WANTED) == []


def test_a_range_that_retention_has_removed_is_reported_with_what_the_log_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served(monkeypatch, run(10, 11), earliest=50)
    with pytest.raises(
        DataLossError, match=r"offsets 12 to 20: retention has removed them .*available offsets 50 to 100"
    ) as lost:
        read(options(), WANTED)
    assert "planned once, at its first action" in str(lost.value)


def test_gaps_of_a_filter_are_not_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    served(monkeypatch, run(12, 17), earliest=10)
    assert read(options(filter="a = 1"), WANTED) == [12, 17]


def test_events_that_retention_removed_from_a_filtered_range_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served(monkeypatch, run(17), earliest=15)
    with pytest.raises(
        DataLossError,
        match="offsets 10 to 15: retention has removed them, perhaps before all of them were read",
    ):
        read(options(filter="a = 1"), WANTED)
    assert read(options(filter="a = 1", failOnDataLoss="false"), WANTED) == [17]


def test_a_node_that_cannot_be_read_from_fails_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    served(monkeypatch, run(10), NodeError("away"))
    with pytest.raises(NodeError, match="away"):
        read(options(failOnDataLoss="false"), WANTED)


def test_spark_asks_for_the_rows_of_no_partition_if_nothing_exists() -> None:
    assert list(rows(options(), chosen({}), InputPartition(None))) == []


def test_tasks_cross_processes_and_say_what_they_read() -> None:
    again = pickle.loads(pickle.dumps(RangesPartition((WANTED,))))
    assert again.task == (WANTED,)
    assert repr(again) == "RangesPartition(log 'temps', partition 3, offsets 10 to 20 (exclusive))"


def test_times_are_sought_once_for_all_partitions_that_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[int], int]] = []

    def sought(_: object, stream: str, partitions: list[int], time_ms: int) -> dict[int, int]:
        asked.append((partitions, time_ms))
        return dict.fromkeys(partitions, 7 if time_ms == 500 else 50)

    monkeypatch.setattr(requests, "offsets_at", sought)
    available = {"temps": LogState("i", {0: Held(5, 20), 1: Held(5, 20), 2: Held(0, 0), 3: Held(5, 20)})}
    given = options(startingTimestamp="500", startingOffsetsByTimestamp='{"temps": {"3": 900}}')
    assert numbers(given, given.starting, available, Edge.EARLIEST) == {"temps": {0: 7, 1: 7, 2: 0, 3: 20}}
    assert asked == [([0, 1, 2], 500), ([3], 900)]
    alone = options(startingOffsetsByTimestamp='{"temps": {"3": 500}}')
    assert numbers(alone, alone.starting, available, Edge.EARLIEST) == {"temps": {0: 5, 1: 5, 2: 0, 3: 7}}


def test_a_time_after_the_last_event_fails_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "offsets_at", lambda *_: {0: 20})
    given = options(startingTimestamp="500", startingOffsetsByTimestampStrategy="error")
    with pytest.raises(
        OffsetError, match=r"no event at or after 500 ms since 1970 UTC .log 'temps', partition 0"
    ):
        numbers(given, given.starting, {"temps": LogState("i", {0: Held(5, 20)})}, Edge.EARLIEST)


def test_times_of_partitions_that_do_not_exist_are_an_error() -> None:
    given = options(startingOffsetsByTimestamp='{"temps": {"7": 900}}')
    with pytest.raises(OffsetError, match="partition 7 does not exist"):
        reading.numbers(given, given.starting, {"temps": LogState("i", {0: Held(5, 20)})}, Edge.EARLIEST)
