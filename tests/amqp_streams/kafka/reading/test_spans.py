"""What was read of partitions stays in memory within a bound, and never gives wrong records."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.kafka.reading.spans import MISSING, SPAN_BYTES, Span, Spans
from amqp_streams.storage.ports import Chunk
from amqp_streams.wire.batched.packed import Packed, packed_copy

PARTITION = "p"
WIDE = 1 << 20


def chunk(*numbers: int, size: int = 10) -> Chunk:
    """Records with these numbers, whose messages say their numbers."""
    gaps = numbers[-1] - numbers[0] >= len(numbers)
    return Chunk(
        numbers[0],
        array("q", [0] * len(numbers)),
        bytes(len(numbers)),
        [b"%d" % number + b"." * size for number in numbers],
        offsets=array("Q", numbers) if gaps else None,
    )


def numbers_of(found: object) -> list[int]:
    assert isinstance(found, Chunk)
    assert [int(message.rstrip(b".")) for message in found.messages] == [
        found.number(index) for index in range(len(found))
    ]
    return [found.number(index) for index in range(len(found))]


def test_a_read_gets_the_records_of_the_span_from_its_number_on() -> None:
    spans = Spans(WIDE)
    spans.add(PARTITION, Span(10, 20, chunk(11, 12, 15)))
    assert numbers_of(spans.find(PARTITION, 10, 30, WIDE)) == [11, 12, 15]
    assert numbers_of(spans.find(PARTITION, 13, 30, WIDE)) == [15]
    assert numbers_of(spans.find(PARTITION, 11, 30, 1)) == [11]
    assert spans.find(PARTITION, 9, 30, WIDE) is MISSING
    assert spans.find(PARTITION, 16, 30, WIDE) is MISSING
    assert spans.find("other", 10, 30, WIDE) is MISSING


def test_a_small_part_of_a_buffer_does_not_keep_the_whole_buffer() -> None:
    spans = Spans(WIDE)
    whole = Chunk(0, array("q", [0] * 100), bytes(100), packed_copy([b"%09d" % each for each in range(100)]))
    spans.add(PARTITION, Span(0, 100, whole))
    for bytes_max, kept in ((9 * 10, 9 * 10), (9 * 60, 9 * 100)):
        found = spans.find(PARTITION, 5, 100, bytes_max)
        assert isinstance(found, Chunk)
        assert isinstance(found.messages, Packed)
        assert (list(found.messages), len(found.messages.buffer)) == (
            list(whole.messages[5 : 5 + bytes_max // 9]),
            kept,
        )


def test_the_last_span_before_a_gap_is_known() -> None:
    spans = Spans(WIDE)
    first, second, far = (Span(at, at + 10, chunk(at, at + 5)) for at in (0, 10, 30))
    for each in (first, second, far):
        spans.add(PARTITION, each)
    found = [spans.last(PARTITION, at) for at in (5, 10, 19, 20, 29, 30, 39, 40)]
    assert found == [None, second, second, None, None, far, far, None]
    assert spans.last("another", 5) is None


def test_numbers_without_records_are_known_too() -> None:
    spans = Spans(WIDE)
    spans.add(PARTITION, Span(10, 20, chunk(11)))
    spans.add(PARTITION, Span(20, 25, None))
    spans.add(PARTITION, Span(25, 30, chunk(29)))
    assert numbers_of(spans.find(PARTITION, 12, 30, WIDE)) == [29]
    assert spans.find(PARTITION, 12, 25, WIDE) is None
    assert spans.find(PARTITION, 30, 30, WIDE) is None
    assert [spans.uncovered(PARTITION, at) for at in (9, 10, 26, 30)] == [9, 30, 30, 30]


def test_what_was_used_the_longest_time_ago_goes_first() -> None:
    spans = Spans(3 * (SPAN_BYTES + 100))
    for start in (0, 10, 20):
        spans.add(PARTITION, Span(start, start + 10, chunk(start)))
    assert numbers_of(spans.find(PARTITION, 0, 30, WIDE)) == [0]
    spans.add(PARTITION, Span(30, 40, chunk(30)))
    assert spans.find(PARTITION, 10, 30, WIDE) is MISSING
    assert numbers_of(spans.find(PARTITION, 0, 30, WIDE)) == [0]


def test_numbers_without_records_stay_with_the_records_after_them() -> None:
    """Otherwise a small cache could never answer a read that needs both."""
    spans = Spans(1)
    spans.add(PARTITION, Span(0, 10, None))
    spans.add(PARTITION, Span(10, 20, None))
    spans.add(PARTITION, Span(20, 30, chunk(25)))
    assert numbers_of(spans.find(PARTITION, 0, 30, WIDE)) == [25]
    assert spans.uncovered(PARTITION, 0) == 30
    spans.forget(PARTITION)
    assert spans.bytes == 0


def test_making_room_compares_no_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition may have many thousand spans, and the oldest one may be the last in it."""
    compared = 0

    def equal(one: Span, other: object) -> bool:
        nonlocal compared
        compared += 1
        return one is other

    monkeypatch.setattr(Span, "__eq__", equal)
    monkeypatch.setattr(Span, "__hash__", object.__hash__)
    spans = Spans(1000 * (SPAN_BYTES + 100))
    for start in reversed(range(0, 10_000, 10)):
        spans.add(PARTITION, Span(start, start + 10, chunk(start, size=0)))
    spans.add(PARTITION, Span(10_000, 10_010, chunk(10_000, size=60_000)))
    assert spans.find(PARTITION, 9_990, 10_000, WIDE) is MISSING
    assert numbers_of(spans.find(PARTITION, 0, 10, WIDE)) == [0]
    assert compared == 0


def test_one_span_may_be_larger_than_the_bound() -> None:
    spans = Spans(10)
    spans.add(PARTITION, Span(0, 1, chunk(0, size=1000)))
    assert numbers_of(spans.find(PARTITION, 0, 1, WIDE)) == [0]
    spans.add(PARTITION, Span(1, 2, chunk(1)))
    assert spans.find(PARTITION, 0, 2, WIDE) is MISSING


def test_a_partition_is_forgotten_as_a_whole_or_below_a_number() -> None:
    spans = Spans(WIDE)
    for start in (0, 10, 20):
        spans.add(PARTITION, Span(start, start + 10, chunk(start)))
    spans.add("other", Span(0, 10, chunk(0)))
    spans.forget(PARTITION, below=15)
    assert spans.find(PARTITION, 0, 30, WIDE) is MISSING
    assert numbers_of(spans.find(PARTITION, 10, 30, WIDE)) == [10]
    spans.forget(PARTITION)
    spans.forget("never seen")
    assert spans.find(PARTITION, 10, 30, WIDE) is MISSING
    assert numbers_of(spans.find("other", 0, 30, WIDE)) == [0]
    spans.forget("other")
    assert spans.bytes == 0


@given(
    st.lists(st.booleans(), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 39), st.integers(1, 12)), max_size=12),
    st.integers(0, 39),
    st.integers(0, 40),
    st.integers(1, 5000),
)
def test_whatever_was_kept_an_answer_is_what_the_partition_has(
    present: list[bool], kept: list[tuple[int, int]], at: int, end: int, bytes_max: int
) -> None:
    """`present`: whether the number belongs to a record."""
    spans = Spans(bytes_max)
    for start, count in kept:
        numbers = [each for each in range(start, min(start + count, len(present))) if present[each]]
        spans.add(PARTITION, Span(start, start + count, chunk(*numbers) if numbers else None))
        assert spans.bytes <= max(bytes_max, SPAN_BYTES + 12 * 100)
    wanted = [number for number in range(at, min(end, len(present))) if present[number]]
    found = spans.find(PARTITION, at, end, WIDE)
    if found is None:
        assert wanted == []
    elif found is not MISSING:
        assert numbers_of(found) == wanted[: len(found)]
