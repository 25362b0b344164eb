"""CloudEvents written from columns, as a Broker's Triggers read them."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client import ReceivedEvent
from event_formats import amqp_binding
from event_formats.event import CloudEvent
from spark_connector.errors import RowError
from spark_connector.writing.cloudevents import event_sections
from spark_connector.writing.sections import joined

STRING_MAP = pa.map_(pa.string(), pa.string())
KINDS = {"time": pa.timestamp("us", "UTC"), "data": pa.binary(), "extensions": STRING_MAP}
REQUIRED = {"id": "1", "source": "/sensors", "type": "temperature.measured"}
ATTRIBUTE_TEXTS = st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn"]), min_size=1, max_size=300)
pa.array([0])  # the first array takes the time of importing pandas


def messages(rows: list[dict[str, Any]], **kinds: pa.DataType) -> list[bytes]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {
        name: pa.array([row.get(name) for row in rows], kinds.get(name, KINDS.get(name, pa.string())))
        for name in names
    }
    found: list[bytes] = joined(event_sections(columns, len(rows))).to_pylist()
    return found


def test_an_event_comes_out_as_the_gateway_knows_it() -> None:
    [message] = messages(
        [
            {
                **REQUIRED,
                "subject": "roof",
                "time": datetime(2010, 1, 1, 12, 0, 0, 120_000, UTC),
                "datacontenttype": "application/json",
                "dataschema": "urn:temperature",
                "data": b'{"f": 39.4}',
                "extensions": [("partitionkey", "2010-01-01"), ("site", "seattle")],
            }
        ]
    )
    event = amqp_binding.decode(message)
    assert event == CloudEvent(
        {
            "specversion": "1.0",
            **REQUIRED,
            "subject": "roof",
            "time": "2010-01-01T12:00:00.120000Z",
            "dataschema": "urn:temperature",
            "partitionkey": "2010-01-01",
            "site": "seattle",
            "datacontenttype": "application/json",
        },
        b'{"f": 39.4}',
    )
    assert ReceivedEvent(message).key == "2010-01-01"


def test_null_columns_are_left_out() -> None:
    [bare, full] = messages(
        [
            {
                **REQUIRED,
                "subject": None,
                "time": None,
                "datacontenttype": None,
                "data": None,
                "extensions": None,
            },
            {
                **REQUIRED,
                "subject": "s",
                "time": datetime(2010, 1, 1, tzinfo=UTC),
                "data": b"",
                "extensions": [("a", "1"), ("b", None)],
            },
        ]
    )
    assert amqp_binding.decode(bare) == CloudEvent({"specversion": "1.0", **REQUIRED}, None)
    wanted = {"specversion": "1.0", **REQUIRED, "subject": "s", "time": "2010-01-01T00:00:00Z", "a": "1"}
    assert amqp_binding.decode(full) == CloudEvent(wanted, b"")
    assert ReceivedEvent(bare).key is None


def test_events_of_the_required_columns_alone_are_events() -> None:
    assert [
        amqp_binding.decode(message).attributes["id"]
        for message in messages([REQUIRED, {**REQUIRED, "id": "2"}])
    ] == ["1", "2"]


def test_extensions_of_a_struct_keep_their_types() -> None:
    kind = pa.struct(
        [
            ("level", pa.int32()),
            ("size", pa.int64()),
            ("hot", pa.bool_()),
            ("raw", pa.binary()),
            ("partitionkey", pa.int64()),
        ]
    )
    [message] = messages(
        [
            {
                **REQUIRED,
                "extensions": {"level": 3, "size": 70_000, "hot": True, "raw": b"\x01", "partitionkey": 7},
            }
        ],
        extensions=kind,
    )
    attributes = amqp_binding.decode(message).attributes
    assert {name: attributes[name] for name in ("level", "size", "hot", "raw", "partitionkey")} == {
        "level": 3,
        "size": 70_000,
        "hot": True,
        "raw": b"\x01",
        "partitionkey": 7,
    }
    assert ReceivedEvent(message).key == "7"


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "id": ATTRIBUTE_TEXTS,
                "source": st.just("urn:x"),
                "type": ATTRIBUTE_TEXTS,
                "subject": st.none() | ATTRIBUTE_TEXTS,
                "time": st.none() | st.datetimes(min_value=datetime(1, 1, 1), timezones=st.just(UTC)),
                "data": st.none() | st.binary(max_size=300),
                "extensions": st.none()
                | st.dictionaries(
                    st.from_regex(r"x[a-z0-9]{1,9}", fullmatch=True), ATTRIBUTE_TEXTS, max_size=3
                ).map(lambda them: list(them.items())),
            }
        ),
        min_size=1,
        max_size=3,
    )
)
def test_the_gateway_reads_every_written_event(rows: list[dict[str, Any]]) -> None:
    for row, message in zip(rows, messages(rows), strict=True):
        event = amqp_binding.decode(message)
        assert event.data == row["data"]
        time = event.attributes.get("time")
        assert (None if time is None else datetime.fromisoformat(str(time))) == row["time"]
        wanted = {name: row[name] for name in ("id", "source", "type", "subject") if row[name] is not None}
        wanted |= dict(row["extensions"] or [])
        assert {
            name: value for name, value in event.attributes.items() if name not in {"time", "specversion"}
        } == wanted


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": None}, "column id is null"),
        ({"type": ""}, "column type is empty"),
        ({"subject": ""}, r"column subject is empty \(null leaves it out\)"),
        ({"id": "a\nb"}, "column id has a control character"),
        ({"subject": "a\ufffe"}, "column subject has a control character or noncharacter"),
        ({"source": "1st:here"}, "column source '1st:here' is not a URI-reference"),
        ({"dataschema": "/schema"}, "column dataschema '/schema' is not an absolute URI"),
        ({"datacontenttype": "json"}, "column datacontenttype: 'json' is not a media type"),
        ({"datacontenttype": "Application/CloudEvents+json"}, "announces an event"),
        ({"extensions": [("Site", "x")]}, "column extensions has an entry 'Site': names of attributes are"),
        (
            {"extensions": [("subject", "x")]},
            "column extensions has an entry 'subject', which has a column of its own",
        ),
        ({"extensions": [("specversion", "0.3")]}, "entry 'specversion': leave it out"),
        ({"extensions": [("site", "\x00")]}, "column extensions has a value with a control character"),
    ],
)
def test_a_row_that_is_not_an_event_is_refused_by_name(change: dict[str, Any], words: str) -> None:
    good: dict[str, Any] = dict(REQUIRED)
    with pytest.raises(RowError, match=words):
        messages([good, {**good, **change}])


@pytest.mark.parametrize(
    "time",
    ["2010-02-29T00:00:00Z", "2010-01-01", "2010-01-01T25:00:00Z", "yesterday", "2010-01-01 00:00:00Z"],
)
def test_a_value_that_is_not_a_time_is_refused(time: str) -> None:
    with pytest.raises(RowError, match=r"column time '.*row 0 of its batch"):
        messages([{**REQUIRED, "time": time}], time=pa.string())


@pytest.mark.parametrize(
    "time", ["2012-02-29T00:00:00Z", "1937-01-01t12:00:27.87+00:20", "1990-12-31T23:59:60Z"]
)
def test_a_time_given_as_text_is_written_as_it_is(time: str) -> None:
    [message] = messages([{**REQUIRED, "time": time}], time=pa.string())
    assert amqp_binding.decode(message).attributes["time"] == time


@pytest.mark.parametrize("number", [1 << 31, -(1 << 40), -(1 << 63)])
def test_an_integer_that_cloudevents_cannot_hold_is_refused(number: int) -> None:
    with pytest.raises(RowError, match="an integer of more than 32 bits"):
        messages([{**REQUIRED, "extensions": {"n": number}}], extensions=pa.struct([("n", pa.int64())]))
