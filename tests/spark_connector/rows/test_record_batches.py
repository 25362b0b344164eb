"""Messages as record batches."""

import logging
from array import array
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client import Event
from spark_connector.errors import MalformedMessageError
from spark_connector.rows.columns import choose, fit
from spark_connector.rows.record_batches import RowMaker
from spark_connector.rows.runs import Run
from spark_connector.rows.schema import arrow_schema, struct
from spark_connector.rows.values import EARLIEST_US, LATEST_US

BROKEN = b"\x00\x53\x75\xa0\x09short"
texts = st.text(max_size=40)
events = st.builds(
    Event,
    st.binary(max_size=60) | texts | st.none(),
    key=st.none() | texts,
    properties=st.none() | st.dictionaries(texts, st.none() | texts | st.integers(0, 9), max_size=3),
    subject=st.none() | texts,
)


def maker(*words: str, mode: str = "FAILFAST", rows_max: int = 10_000, bytes_max: int = 8 << 20) -> RowMaker:
    columns = choose(words)
    return RowMaker(columns, arrow_schema(struct(columns)), mode=mode, rows_max=rows_max, bytes_max=bytes_max)


def run(messages: list[bytes], first: int = 100) -> Run:
    numbers = range(first, first + len(messages))
    times = array("q", [1_769_860_800_000 + number for number in numbers])
    return Run(array("Q", numbers), times, pa.array(messages, pa.binary()))


def test_without_columns_there_is_a_number_of_rows() -> None:
    made = RowMaker(choose([]), pa.schema([]), mode="FAILFAST", rows_max=4, bytes_max=1 << 20)
    assert not made.needs_events
    assert [batch.num_rows for batch in made.numbered("temps", 3, 10, 20)] == [4, 4, 2]


def rows(made: RowMaker, messages: list[bytes]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for batch in made.batches("temps", 3, [run(messages)] if messages else []):
        batch.validate(full=True)
        found += batch.to_pylist()
    return found


def test_a_row_has_what_its_message_and_its_place_say() -> None:
    event = Event(
        b"20.5",
        key="kitchen",
        properties={"site": "roof", "n": 5},
        subject="s",
        content_type="text/plain",
        message_id="m",
    )
    [row] = rows(maker("all"), [event.encode()])
    annotations = dict(row.pop("annotations"))  # type: ignore[call-overload]
    assert annotations == {"event-streams-group-key": "kitchen"}
    assert row == {
        "body": b"20.5",
        "stream": "temps",
        "partition": 3,
        "offset": 100,
        "enqueued_time": datetime(2026, 1, 31, 12, 0, 0, 100_000, UTC),
        "key": "kitchen",
        "properties": [("site", "roof"), ("n", "5")],
        "subject": "s",
        "content_type": "text/plain",
        "message_id": "m",
        "correlation_id": None,
        "creation_time": None,
        "body_type": "data",
        "message": event.encode(),
        "error": None,
    }


@given(st.lists(events, max_size=20), st.integers(1, 7))
def test_batches_have_the_schema_and_every_row_once(given_events: list[Event], rows_max: int) -> None:
    made = maker("default", "subject", rows_max=rows_max)
    messages = [event.encode() for event in given_events]
    batches = list(made.batches("t", 0, [run(messages)] if messages else []))
    schema = arrow_schema(struct(choose(["default", "subject"])))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(schema)
        assert 0 < batch.num_rows <= rows_max
    found = [row for batch in batches for row in batch.to_pylist()]
    assert [row["offset"] for row in found] == [100 + number for number in range(len(messages))]
    assert [row["key"] for row in found] == [event.key for event in given_events]
    assert [row["subject"] for row in found] == [event.subject for event in given_events]
    for row, event in zip(found, given_events, strict=True):
        texts_of = (
            None
            if not event.properties
            else [(name, None if value is None else str(value)) for name, value in event.properties.items()]
        )
        assert row["properties"] == texts_of
        assert row["body"] == (event.body.encode() if isinstance(event.body, str) else event.body)


@given(st.lists(st.integers(0, 3000), max_size=40))
def test_batches_are_not_larger_than_the_limit(sizes: list[int]) -> None:
    messages = [Event(bytes(size), properties={"n": index}).encode() for index, size in enumerate(sizes)]
    batches = list(
        maker("default", bytes_max=4096).batches(
            "a stream with quite a long name", 0, [run(messages)] if messages else []
        )
    )
    assert sum(batch.num_rows for batch in batches) == len(sizes)
    assert all(batch.nbytes <= 4096 or batch.num_rows == 1 for batch in batches)


def test_an_empty_map_is_not_a_missing_one_and_an_empty_body_not_a_null() -> None:
    empty = b"\x00\x53\x74\xc1\x01\x00\x00\x53\x75\xa0\x00"
    found = rows(maker("body", "properties"), [empty, Event(None).encode(), Event(b"").encode()])
    assert [row["properties"] for row in found] == [[], None, None]
    assert [row["body"] for row in found] == [b"", None, b""]


def test_a_message_that_cannot_be_read_is_named_with_its_place_and_the_remedies() -> None:
    with pytest.raises(
        MalformedMessageError,
        match=r"cannot be read: .*log 'temps', partition 3, offset 101.*PERMISSIVE.*DROPMALFORMED",
    ):
        rows(maker("default"), [Event(b"a").encode(), BROKEN, Event(b"b").encode()])


def test_a_message_that_cannot_be_read_leaves_nulls_and_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    made = maker("body", "key", "offset", "error", mode="PERMISSIVE")
    with caplog.at_level(logging.WARNING):
        found = rows(made, [Event(b"a", key="k").encode(), BROKEN, BROKEN, Event(b"b").encode()])
    assert [(row["body"], row["key"], row["offset"]) for row in found] == [
        (b"a", "k", 100),
        (None, None, 101),
        (None, None, 102),
        (b"b", None, 103),
    ]
    assert [row["error"] is None for row in found] == [True, False, False, True]
    assert made.malformed == 2
    [record] = caplog.records
    assert "log 'temps', partition 3, offset 101" in record.getMessage()


def test_a_message_that_cannot_be_read_is_left_out_and_counted() -> None:
    made = maker("body", "offset", mode="DROPMALFORMED")
    assert [row["offset"] for row in rows(made, [BROKEN, Event(b"a").encode(), BROKEN])] == [101]
    assert made.malformed == 2


def test_a_section_that_no_column_needs_is_not_looked_at() -> None:
    broken_properties = b"\x00\x53\x74\xc1\x05\x02\xa1\x01\xff\x40" + b"\x00\x53\x75\xa0\x01x"
    assert rows(maker("body"), [broken_properties]) == [{"body": b"x"}]
    with pytest.raises(MalformedMessageError, match="offset 100"):
        rows(maker("body", "properties"), [broken_properties])


def test_a_body_is_text_where_the_schema_wants_it() -> None:
    columns = fit([("body", "string"), ("offset", "bigint")], events=False)
    schema = pa.schema([("body", pa.string()), ("offset", pa.int64())])
    made = RowMaker(columns, schema, mode="PERMISSIVE", rows_max=10, bytes_max=1 << 20)
    found = rows(made, [Event("ü".encode()).encode(), Event(b"\xff").encode()])
    assert [row["body"] for row in found] == ["ü", None]
    strict = RowMaker(columns, schema, mode="FAILFAST", rows_max=10, bytes_max=1 << 20)
    with pytest.raises(MalformedMessageError, match=r"not UTF-8.*offset 101"):
        rows(strict, [Event(b"a").encode(), Event(b"\xff").encode()])


def test_cloudevents_have_columns_of_their_own() -> None:
    attributes = {
        "specversion": "1.0",
        "id": "1",
        "source": "/s",
        "type": "t",
        "subject": "x",
        "site": "roof",
    }
    event = Event(
        b"{}",
        properties={f"cloudEvents_{name}": value for name, value in attributes.items()},
        content_type="application/json",
        subject="amqp",
    )
    [row, other] = rows(
        maker("cloudevents", "offset", "error", mode="PERMISSIVE"),
        [event.encode(), Event(b"no event").encode()],
    )
    assert row == {
        "id": "1",
        "source": "/s",
        "type": "t",
        "subject": "x",
        "time": None,
        "datacontenttype": "application/json",
        "data": b"{}",
        "extensions": [("site", "roof")],
        "offset": 100,
        "error": None,
    }
    assert (other["id"], other["extensions"], other["offset"]) == (None, None, 101)
    assert "not a CloudEvent" in str(other["error"])


@pytest.mark.parametrize("other", ["9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00"])
def test_a_text_whose_zone_moves_it_out_of_the_range_is_a_fault_of_its_row(other: str) -> None:
    """Python could not show any row of a result with it."""
    required = {f"cloudEvents_{name}": name for name in ("id", "source", "type")}
    given_events = [
        Event(b"", properties=required | {"cloudEvents_specversion": "1.0", "cloudEvents_time": time})
        for time in ("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", other)
    ]
    found = rows(maker("cloudevents", "error", mode="PERMISSIVE"), [event.encode() for event in given_events])
    assert [row["time"] for row in found] == [
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        None,
    ]
    assert "not in the years 1 to 9999" in str(found[2]["error"])


@pytest.mark.parametrize("other", ["2026-01-31T13:00:00.123456789+01:00", None, "noon"])
def test_times_of_cloudevents_are_read_together_or_one_by_one(other: str | None) -> None:
    """Arrow reads most forms, but not all that RFC 3339 allows."""
    required = {
        "cloudEvents_specversion": "1.0",
        "cloudEvents_id": "1",
        "cloudEvents_source": "/s",
        "cloudEvents_type": "t",
    }
    given_events = [
        Event(b"", properties=required | {"cloudEvents_time": time})
        for time in ("2026-01-31T12:00:00.5Z", other)
    ]
    found = rows(maker("cloudevents", "error", mode="PERMISSIVE"), [event.encode() for event in given_events])
    assert found[0]["time"] == datetime(2026, 1, 31, 12, 0, 0, 500_000, UTC)
    assert found[1]["time"] == (
        datetime(2026, 1, 31, 12, 0, 0, 123_456, UTC) if other and other != "noon" else None
    )
    assert (found[1]["error"] is None) == (other != "noon")
    assert found[1]["id"] == "1"


@pytest.mark.parametrize(
    "at_ms", [(1 << 63) - 1, -(1 << 63), 1 << 62, EARLIEST_US // 1000 - 1, LATEST_US // 1000 + 1]
)
def test_a_time_that_no_timestamp_holds_is_a_fault_of_its_row(at_ms: int) -> None:
    given_events = [Event(b"", creation_time_ms=5), Event(b"", creation_time_ms=at_ms)]
    found = rows(
        maker("creation_time", "error", mode="PERMISSIVE"), [event.encode() for event in given_events]
    )
    assert [row["creation_time"] for row in found] == [datetime(1970, 1, 1, 0, 0, 0, 5000, UTC), None]
    assert f"the time {at_ms} ms" in str(found[1]["error"])
