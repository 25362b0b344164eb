"""Rows as messages, and where they go."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client import ReceivedEvent
from spark_connector.errors import RowError
from spark_connector.writing.layout import Column, plan
from spark_connector.writing.messages import BY_KEY, Encoder, Target

TYPES = {
    "body": ("binary", pa.binary()),
    "key": ("string", pa.string()),
    "partition": ("int", pa.int32()),
    "properties": ("map<string,string>", pa.map_(pa.string(), pa.string())),
    "subject": ("string", pa.string()),
    "content_type": ("string", pa.string()),
    "message_id": ("string", pa.string()),
    "correlation_id": ("string", pa.string()),
    "creation_time": ("timestamp", pa.timestamp("us", "UTC")),
}
pa.array([0])  # the first array takes the time of importing pandas


def encode(
    columns: dict[str, list[object]], partitions: int = 4, default: int = 3
) -> dict[Target, list[bytes]]:
    layout = plan(
        [Column(name, TYPES[name][0], {"*": "string"} if name == "properties" else None) for name in columns]
    )
    batch = pa.record_batch(
        [pa.array(values, TYPES[name][1]) for name, values in columns.items()],
        names=[f"_{at}" for at in range(len(columns))],
    )
    messages, targets = Encoder(layout, partitions, default).encode(batch)
    found: dict[Target, list[bytes]] = {}
    each = targets.to_pylist() if isinstance(targets, pa.Array) else [targets] * len(messages)
    for message, target in zip(messages.to_pylist(), each, strict=True):
        found.setdefault(target, []).append(message)
    return found


def bodies(targets: dict[Target, list[bytes]]) -> dict[Target, list[object]]:
    return {
        target: [ReceivedEvent(message).body for message in messages] for target, messages in targets.items()
    }


def test_a_row_with_everything_is_one_message_with_everything() -> None:
    targets = encode(
        {
            "message_id": ["m1"],
            "properties": [[("site", "roof"), ("empty", None)]],
            "content_type": ["text/csv"],
            "body": [b"20.5"],
            "key": ["kitchen"],
            "subject": ["temperature"],
            "correlation_id": ["c1"],
            "creation_time": [1_000_999],
        }
    )
    [event] = map(ReceivedEvent, targets[BY_KEY])
    assert (event.body, event.key, event.properties) == (b"20.5", "kitchen", {"site": "roof"})
    assert (event.subject, event.content_type, event.message_id) == ("temperature", "text/csv", "m1")
    assert (event.correlation_id, event.creation_time_ms) == ("c1", 1000)


def test_rows_that_do_not_care_go_to_the_partition_of_their_task() -> None:
    assert bodies(encode({"body": [b"a", b"b"]}, default=2)) == {2: [b"a", b"b"]}


def test_keys_are_left_to_the_engine() -> None:
    assert bodies(encode({"body": [b"a", b"b", b"c"], "key": ["x", None, "y"]})) == {
        BY_KEY: [b"a", b"c"],
        3: [b"b"],
    }


def test_a_partition_counts_more_than_a_key() -> None:
    targets = encode(
        {"body": [b"a", b"b", b"c", b"d"], "key": ["x", "x", None, "x"], "partition": [1, None, None, 0]}
    )
    assert bodies(targets) == {1: [b"a"], BY_KEY: [b"b"], 3: [b"c"], 0: [b"d"]}
    assert ReceivedEvent(targets[1][0]).key == "x"


def test_an_empty_table_gives_no_messages() -> None:
    assert encode({"body": [], "key": [], "partition": []}) == {}


@pytest.mark.parametrize("partition", [-1, 4, (1 << 31) - 1])
def test_a_partition_that_the_log_has_not_is_refused(partition: int) -> None:
    with pytest.raises(
        RowError, match=rf"column partition is {partition}: the log has partitions 0 to 3 \(row 1 of"
    ):
        encode({"body": [b"a", b"b"], "partition": [0, partition]})


def test_a_content_type_that_amqp_cannot_hold_is_refused() -> None:
    with pytest.raises(RowError, match=r"column content_type 'é' is not ASCII \(row 0"):
        encode({"body": [b"a"], "content_type": ["é"]})


@given(
    st.lists(st.tuples(st.none() | st.integers(0, 3), st.none() | st.text(max_size=3)), max_size=20),
    st.booleans(),
)
def test_every_row_is_sent_once_and_in_order(
    rows: list[tuple[int | None, str | None]], with_partition: bool
) -> None:
    """For any values of the columns, the rows of one target keep their order."""
    numbers = [str(number).encode() for number in range(len(rows))]
    columns: dict[str, list[object]] = {"body": list(numbers), "key": [key for _, key in rows]}
    if with_partition:
        columns["partition"] = [partition for partition, _ in rows]
    targets = bodies(encode(columns))
    wanted: dict[Target, list[object]] = {}
    for number, (partition, key) in zip(numbers, rows, strict=True):
        target = partition if with_partition and partition is not None else BY_KEY if key is not None else 3
        wanted.setdefault(target, []).append(number)
    assert targets == wanted
