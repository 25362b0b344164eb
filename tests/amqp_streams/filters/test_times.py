"""ISO 8601 texts as milliseconds. Spec: FILTEX 6.3.2, 6.4.4.3.4."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.filters.times import date_ms, duration_ms, moment


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01.5Z", 1500),
        ("1970-01-01T01:00:00+01:00", 0),
        ("19700101T000001Z", 1000),
        ("1969-12-31T23:59:59", -1000),
        ("1970-W01-4", 0),
        ("9999-12-31T23:59:59.999Z", 253402300799999),
        ("2020-02-30", None),
        ("12:00", None),
        ("yesterday", None),
        ("", None),
        ("2020-01-01" + " " * 100, None),
    ],
)
def test_a_date_is_milliseconds_since_the_epoch_in_utc(text, milliseconds):
    assert date_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1S", 1000),
        ("PT0.5S", 500),
        ("PT1H30M", 5_400_000),
        ("P1D", 86_400_000),
        ("P1W", 604_800_000),
        ("P1Y2M", (365 + 60) * 86_400_000),
        ("P1DT1,5H", 91_800_000),
        ("P", None),
        ("PT", None),
        ("1D", None),
        ("P1S", None),
        ("PT1S" * 20, None),
    ],
)
def test_a_duration_is_milliseconds(text, milliseconds):
    assert duration_ms(text) == milliseconds
    assert moment(text) == milliseconds


@given(st.text(max_size=70))
def test_any_text_is_a_moment_or_none(text):
    assert moment(text) is None or isinstance(moment(text), int)
