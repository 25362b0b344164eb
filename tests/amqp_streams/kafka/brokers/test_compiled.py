"""The compiled loop that takes records, over messages that the test makes: as columns made in Python."""

from collections.abc import Sequence
from itertools import groupby, takewhile

import pytest
from confluent_kafka import KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.kafka.brokers import compiled
from amqp_streams.kafka.brokers.compiled import Columns, consumed_columns
from amqp_streams.kafka.brokers.library import FUNCTIONS, PURE_VARIABLE
from amqp_streams.kafka.brokers.taking import Place, consumed, sorted_out
from amqp_streams.kafka.records.chunks import Consumed, joined
from tests.amqp_streams.kafka.brokers.library import ERROR_TEXT, Handed, Library, Made, Reported

pytestmark = pytest.mark.skipif(
    compiled.loaded is None, reason=f"the loop is not built here, or {PURE_VARIABLE} is set"
)
END = KafkaError._PARTITION_EOF
T = Place("t", 0)


def plain(records: Consumed) -> tuple[list[int], list[int], list[bytes | None]]:
    """Arrays and buffers as lists."""
    return list(records.offsets), list(records.times_ms), list(records.values)


def in_python(made: Sequence[Made]) -> dict[Place, Consumed]:
    """What confluent-kafka's messages become."""
    messages = [
        Message(
            topic=each.topic,
            partition=each.partition,
            offset=each.offset,
            value=each.value,
            error=KafkaError(each.error) if each.error else None,
            timestamp=(2, each.time_ms),
        )
        for each in made
    ]
    found, _ = sorted_out(messages)
    return {place: consumed(records, plain=False) for place, records in found.items()}


def in_c(runs: Sequence[tuple[object, ...]]) -> dict[Place, Consumed]:
    """What the compiled loop has brought."""
    found: dict[Place, list[Consumed]] = {}
    for columns in map(Columns._make, runs):
        found.setdefault(Place(columns.topic, columns.partition), []).append(consumed_columns(columns))
    return {place: joined(parts) for place, parts in found.items()}


MESSAGES = st.builds(
    Made,
    topic=st.sampled_from(["t", "other", "wörter"]),
    partition=st.integers(0, 1),
    offset=st.integers(0, (1 << 63) - 1),
    value=st.one_of(st.none(), st.binary(max_size=20), st.just(b"alike")),
    time_ms=st.integers(0, 1 << 50),
    error=st.sampled_from([0, 0, 0, 0, END, KafkaError._TRANSPORT, KafkaError.OFFSET_OUT_OF_RANGE]),
)


@given(
    st.lists(MESSAGES, max_size=60),
    st.integers(1, 12),
    st.one_of(st.just(5000), st.integers(1, 70)),
    st.one_of(st.just(1 << 20), st.integers(1, 300)),
)
def test_it_brings_the_same_as_the_columns_in_python(
    made: list[Made], at_once: int, count: int, bytes_max: int
) -> None:
    with Library(made, at_once) as library:
        runs, others = library.take(count, bytes_max)
    taken = made[: sum(library.steps)]
    assert {place: plain(some) for place, some in in_c(runs).items()} == {
        place: plain(some) for place, some in in_python(taken).items()
    }
    assert others == [
        (each.topic, each.partition, each.offset, each.error, ERROR_TEXT.decode())
        for each in taken
        if each.error
    ]
    assert library.destroyed == [each.offset for each in taken], "each is given back once"
    sizes = [0 if each.error or each.value is None else len(each.value) for each in taken]
    last = library.steps[-1]
    assert len(taken) <= count
    assert sum(sizes[: len(sizes) - last]) < bytes_max, "none was asked for when there were enough"
    assert last == 0 or len(taken) == count or sum(sizes) >= bytes_max, "nor did it stop before"


def test_it_waits_for_the_first_message_only_and_asks_for_about_as_many_as_are_missing() -> None:
    made = [Made("t", 0, number, bytes(100)) for number in range(3000)]
    with Library(made) as library:
        library.take(5000, 100_000)
    assert library.waits == [7, *[0] * (len(library.waits) - 1)]
    assert library.steps == [1, 500, 500]
    with Library([]) as library:
        assert library.take() == ([], [])
    assert library.waits == [7]


def test_wrong_arguments_are_refused() -> None:
    assert compiled.loaded is not None
    take, bind = compiled.loaded.module.take, compiled.loaded.module.bind
    for arguments in ((0, 0, 1, 1), (1, -1, 1, 1), (1, 0, 0, 1), (1, 0, 1, 0), (1, 0, 100_001, 1)):
        with pytest.raises(ValueError, match="take needs a queue"):
            take(*arguments)
    with pytest.raises(TypeError):
        take("queue", 0, 1, 1)
    with pytest.raises(ValueError, match=f"bind needs {len(FUNCTIONS)} addresses"):
        bind(b"too few")


def test_records_without_a_value_and_of_many_sizes_become_columns() -> None:
    made = [Made(*T, 4, b"one", 40), Made(*T, 6, None, 41), Made(*T, 7, b"", 42), Made(*T, 9, b"three", 43)]
    with Library(made) as library:
        runs, others = library.take()
    assert plain(in_c(runs)[T]) == ([4, 6, 7, 9], [40, 41, 42, 43], [b"one", None, b"", b"three"])
    assert others == []


VALUES = st.lists(st.binary(max_size=9), max_size=30)


@given(VALUES, st.data())
def test_records_are_handed_over_as_they_are(values: list[bytes], data: st.DataObject) -> None:
    key = st.one_of(st.none(), st.binary(max_size=3))
    keys = data.draw(st.one_of(st.none(), st.lists(key, min_size=len(values), max_size=len(values))))
    first = data.draw(st.integers(0, len(values)))
    number = data.draw(st.integers(1, (1 << 64) - 1))
    with Library() as library:
        assert library.produce(values, keys, first, number=number) is None
    assert (
        library.handed
        == [
            Handed("wörter", 5, value, key, number)
            for value, key in zip(values, keys or [None] * len(values), strict=True)
        ][first:]
    )
    assert library.topics == (["wörter", None] if first < len(values) else [])


FULL, LARGE = KafkaError._QUEUE_FULL, KafkaError.MSG_SIZE_TOO_LARGE


@given(st.integers(0, 1300), st.integers(0, 1300), st.lists(st.sampled_from([0, FULL, LARGE]), max_size=20))
def test_each_record_has_its_error_and_nothing_is_handed_over_after_a_step_with_one(
    count: int, before: int, codes: list[int]
) -> None:
    with Library(codes=[*[0] * before, *codes]) as library:
        found = library.produce([b"%d" % index for index in range(count)])
    errors = ([0] * before + codes + [0] * count)[:count]
    step = next((index for index in range(0, count, 500) if any(errors[index : index + 500])), None)
    if step is None:
        assert found is None
        assert len(library.handed) == count
        return
    tried = errors[step : step + 500]
    assert found == (step, tried + [FULL] * (count - step - len(tried)))
    taken = [index for index in range(step + len(tried)) if not errors[index]]
    assert [each.value for each in library.handed] == [b"%d" % index for index in taken]


def test_a_topic_that_the_library_refuses_is_the_error_of_each_record() -> None:
    with Library() as library:
        library.no_topic = KafkaError._INVALID_ARG
        assert library.produce([b"a", b"b"]) == (0, [KafkaError._INVALID_ARG] * 2)
    assert library.handed == []


REPORT = st.builds(
    Reported,
    st.integers(1, 3),
    st.integers(-1, (1 << 63) - 1),
    st.sampled_from([0, 0, 0, KafkaError._TIMED_OUT]),
)


@given(st.lists(st.one_of(st.none(), st.lists(REPORT, max_size=8)), max_size=8), st.integers(1, 20))
def test_reports_come_in_runs_in_their_order(events: list[list[Reported] | None], count: int) -> None:
    with Library(events=events) as library:
        runs, others = library.reports(count)
    taken = events[: len(library.released) + len(others)]
    reports = [report for event in taken for report in event or ()]
    found = []
    for (number, error), some in groupby(reports, key=lambda report: (report.number, report.error)):
        run = list(some)
        last = -1 if error else max(-1, *[report.offset for report in run])
        found.append((number, len(run), error, last))
    assert runs == found
    assert others == [index for index, event in enumerate(taken, 1) if event is None], (
        "the caller releases them"
    )
    assert library.released == [index for index, event in enumerate(taken, 1) if event is not None]
    assert len(reports) >= count or len(taken) == len(events), "it takes what is there"
    assert library.waits[0] == 7
    # An event without reports is not what it waited for.
    waited = len(list(takewhile(lambda event: event == [], taken))) + 1
    assert library.waits == [*[7] * waited, *[0] * (len(library.waits) - waited)][: len(library.waits)]


def test_many_reports_of_one_event_are_all_taken() -> None:
    reports = [Reported(1 + index % 2, index) for index in range(3001)]
    with Library(events=[reports, []]) as library:
        runs, others = library.reports(1)
    assert runs == [(1 + index % 2, 1, 0, index) for index in range(3001)]
    assert (others, library.released) == ([], [1])


def test_wrong_arguments_of_a_producer_are_refused() -> None:
    assert compiled.loaded is not None
    produce, reports = compiled.loaded.module.produce, compiled.loaded.module.reports
    refused: list[tuple[object, ...]] = [
        (0, "t", 0, [b""], None, 0, 1, 0),
        (1, "t", 0, (b"",), None, 0, 1, 0),
        (1, "t", 0, [b""], [], 0, 1, 0),
        (1, "t", 0, [b""], None, 2, 1, 0),
        (1, "t", 0, [b""], None, -1, 1, 0),
    ]
    for arguments in refused:
        with pytest.raises(ValueError, match="produce needs a producer"):
            produce(*arguments)
    for wrong in ((1, "t", 0, ["text"], None, 0, 1, 0), (1, "t", 0, [b""], ["text"], 0, 1, 0)):
        with pytest.raises(TypeError):
            produce(*wrong)
    for wrong_ones in ((0, 0, 1), (1, -1, 1), (1, 0, 0), (1, 0, 100_001)):
        with pytest.raises(ValueError, match="reports needs a queue"):
            reports(*wrong_ones)
