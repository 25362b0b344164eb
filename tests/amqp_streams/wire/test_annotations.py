"""Delivery annotations written fast are those a general encoder writes, for any record."""

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message, symbol, timestamp

from amqp_streams.errors import WireError
from amqp_streams.wire.annotations import AnnotationWriter, assemble, section
from amqp_streams.wire.codec import Described, Symbol, Timestamp, ULong, decode
from amqp_streams.wire.offsets import OFFSET_MAX, offset_text
from amqp_streams.wire.sections import delivery_annotations, sections, strip
from tests.amqp_streams.decoded import described, mapping

DATA = b"\x00\x53\x75\xa0\x03abc"

partitions = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=200)
firsts = st.integers(0, OFFSET_MAX - 5000) | st.integers(0, 50).map(lambda back: 10_000 - back)
timestamps = st.integers(0, (1 << 63) - 1)


def expected(partition: str, number: int, timestamp_ms: int) -> dict[Any, Any]:
    return {
        "event-streams-source-partition": Symbol(partition),
        "event-streams-timestamp": Timestamp(timestamp_ms),
        "event-streams-offset": Symbol(offset_text(number)),
    }


@given(partitions, firsts, timestamps, st.integers(0, 40) | st.integers(995, 2005))
def test_a_run_has_the_annotations_of_each_record(
    partition: str, first: int, timestamp_ms: int, count: int
) -> None:
    run = AnnotationWriter(partition).run(first, timestamp_ms, count)
    assert len(run) == count
    for number in {0, 1, count // 2, count - 1} & set(range(count)):
        written, end = decode(run[number])
        assert end == len(run[number])
        assert written == Described(ULong(0x71), expected(partition, first + number, timestamp_ms))
        assert [type(value) for value in mapping(described(written).value).values()] == [
            Symbol,
            Timestamp,
            Symbol,
        ]


@given(firsts, st.lists(st.integers(0, 5), max_size=60), timestamps.map(lambda start: start // 2))
def test_runs_with_different_timestamps_are_those_of_the_single_records(
    first: int, steps: list[int], start: int
) -> None:
    times = array("q", [start + sum(steps[: index + 1]) for index in range(len(steps))])
    writer = AnnotationWriter("7")
    assert writer.runs(first, times) == [
        writer.run(first + index, at, 1)[0] for index, at in enumerate(times)
    ]


def test_runs_continue_over_the_thousands() -> None:
    writer = AnnotationWriter("0")
    times = [1] * 999 + [2] * 1002 + [3]
    assert writer.runs(998, times) == [writer.run(998 + index, at, 1)[0] for index, at in enumerate(times)]


def test_the_last_offset_can_be_written() -> None:
    (written,) = AnnotationWriter("0").run(OFFSET_MAX, 0, 1)
    assert delivery_annotations(written + DATA)["event-streams-offset"] == "9" * 16


@given(
    st.dictionaries(
        st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=1),
        st.none() | st.integers(0, 9) | st.text(),
        max_size=40,
    )
)
def test_further_annotations_stand_on_every_record(extra: dict[str, object]) -> None:
    for written in AnnotationWriter("1", extra).run(5, 6, 2):
        found = delivery_annotations(written + DATA)
        assert found.items() >= {key: value for key, value in extra.items() if value is not None}.items()
        assert found["event-streams-timestamp"] == 6


@given(
    st.sampled_from([b"", b"\x00\x53\x70\x45"]),
    st.lists(st.sampled_from([b"", b"\x00\x53\x70\x45", b"\x00\x53\x70\xc0\x02\x01\x41"]), max_size=5),
)
def test_a_message_is_put_together_so_that_stripping_gives_back_what_was_stored(
    usual: bytes, heads: list[bytes]
) -> None:
    for fronts in (heads, [usual] * 3):
        stored = [front + DATA for front in fronts]
        sizes = bytes(map(len, fronts))
        annotations = AnnotationWriter("1").run(0, 0, len(stored))
        whole = assemble(annotations, stored, sizes)
        assert [strip(message) for message in whole] == list(zip(sizes, stored, strict=True))
        assert [
            message[size : size + len(written)]
            for message, size, written in zip(whole, sizes, annotations, strict=True)
        ] == annotations
        assert all(len(sections(message)) in {2, 3} for message in whole)


def test_proton_reads_the_annotations() -> None:
    message = Message()
    message.decode(AnnotationWriter("3").run(42, 1_700_000_000_123, 1)[0] + DATA)
    assert message.instructions == {
        symbol("event-streams-source-partition"): symbol("3"),
        symbol("event-streams-timestamp"): timestamp(1_700_000_000_123),
        symbol("event-streams-offset"): symbol("0000000000000042"),
    }


def test_any_section_can_be_written_slowly() -> None:
    assert section({}) == section({"a": None}) == b""
    assert delivery_annotations(section({"a": Symbol("b"), "c": None, "d": 1}) + DATA) == {"a": "b", "d": 1}
    with pytest.raises(WireError):
        section({"a": object()})
