"""Which conditions bound a reader, and that a bounded reader misses nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.filters.bounds import EVERYTHING, NOTHING, Bounds, bounds_of
from amqp_streams.filters.evaluation.sql import condition
from amqp_streams.filters.language.parser import parse
from amqp_streams.filters.language.syntax import Dialect
from amqp_streams.filters.values import FAILED
from amqp_streams.wire.offsets import Earliest, Latest
from tests.amqp_streams.filters.messages import LATEST, LIMITS, Sample

CASES = [
    ("d.event-streams-offset > '0000000000000005'", Bounds(after=(5,))),
    ("d.event-streams-offset >= '0000000000000005'", Bounds(after=(4,))),
    ("d.event-streams-offset >= '0000000000000000'", Bounds(after=(Earliest(),))),
    ("d.event-streams-offset < '0000000000000005'", Bounds(before=(5,))),
    ("d.event-streams-offset <= '0000000000000005'", Bounds(before=(6,))),
    ("d.event-streams-offset = '0000000000000005'", Bounds(after=(4,), before=(6,))),
    ("'0000000000000005' < d.event-streams-offset", Bounds(after=(5,))),
    ("'0000000000000005' >= d.event_streams_offset", Bounds(before=(6,))),
    ("d.event-streams-offset <> '0000000000000005'", None),
    ("d.event-streams-offset > 'a4c5'", Bounds(after=(10**16 - 1,))),
    ("d.event-streams-offset > ''", Bounds(after=(Earliest(),))),
    ("d.event-streams-offset > '@earliest'", Bounds(after=(Earliest(),))),
    ("d.event-streams-offset <= '@earliest'", NOTHING),
    ("d.event-streams-offset > '@latest'", Bounds(after=(Latest(),))),
    ("d.event-streams-offset <= '@latest'", Bounds(before=(Latest(),))),
    ("d.event-streams-offset = '@latest'", NOTHING),
    ("d.event-streams-timestamp > 1585672841000", Bounds(after_ms=1585672841000)),
    ("d.event-streams-timestamp >= 5", Bounds(after_ms=4)),
    ("d.event-streams-timestamp < '1970-01-01T00:00:01Z'", Bounds(before_ms=1000)),
    ("d.event-streams-timestamp <= 5", Bounds(before_ms=6)),
    ("5 = d.event-streams-timestamp", Bounds(after_ms=4, before_ms=6)),
    ("TRUE", EVERYTHING),
    ("FALSE", NOTHING),
    ("d.event-streams-timestamp > 5 + 1", None),
    ("d.event-streams-offset > a.x", None),
    ("d.event-streams-source-partition = '3'", None),
    ("a.x = 5", None),
]


def sql(text):
    return parse(text, Dialect.SQL, LIMITS)


def narrowing(text: str) -> Bounds:
    bounds = bounds_of(sql(text))
    assert bounds is not None
    return bounds


@pytest.mark.parametrize(("text", "bounds"), CASES)
def test_a_comparison_with_a_constant_bounds_the_reader(text, bounds):
    assert bounds_of(sql(text)) == bounds


offsets = st.integers(0, 12).map("{:016d}".format) | st.sampled_from(
    ["", "5", "0000000000000003x", "@earliest", "@latest", "zz"]
)
comparisons = st.sampled_from(["=", ">", ">=", "<", "<="])
texts = st.one_of(
    st.builds("d.event-streams-offset {} '{}'".format, comparisons, offsets),
    st.builds("'{1}' {0} d.event-streams-offset".format, comparisons, offsets),
    st.builds("d.event-streams-timestamp {} {}".format, comparisons, st.integers(0, 12)),
)


@given(texts, texts, st.integers(0, 12), st.integers(0, 12))
def test_bounds_say_the_same_as_the_conditions_that_they_stand_for(one, other, number, timestamp_ms):
    record = Sample(number=number, timestamp_ms=timestamp_ms).record()
    bounds = [narrowing(text) for text in (one, other)]
    truths = [condition(sql(text), FAILED)(record) for text in (one, other)]
    assert [each.within(record) for each in bounds] == truths
    both = bounds[0].narrowed(bounds[1])
    assert both.within(record) is all(truths)


@given(
    texts, texts, st.lists(st.integers(0, 12), max_size=12).map(sorted), st.integers(0, 5), st.integers(0, 3)
)
def test_a_reader_that_keeps_the_bounds_misses_nothing_and_reads_nothing_else(
    one, other, timestamps, base, start
):
    bounds = narrowing(one).narrowed(narrowing(other))
    start = min(start, len(timestamps))
    low, high = bounds.indices(base, timestamps, start, len(timestamps), LATEST)
    records = [
        Sample(number=base + index, timestamp_ms=timestamps[index]).record()
        for index in range(start, len(timestamps))
    ]
    within = [record.number - base for record in records if bounds.within(record)]
    assert within == list(range(low, high))
    for record in records:
        if bounds.done(record.number, record.timestamp_ms, LATEST):
            assert not any(later.number >= record.number and bounds.within(later) for later in records)
        if bounds.within(record):
            assert bounds.first(LATEST) <= record.number


def test_everything_has_no_end_and_nothing_ends_at_once():
    assert (EVERYTHING.first(5), EVERYTHING.end(5)) == (0, None)
    assert NOTHING.done(0, 0, 5)
    assert Bounds(after=(Latest(), 3)).first(10) == 10
    assert Bounds(before=(Latest(), 30)).end(10) == 10
