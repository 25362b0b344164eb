import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.resources.durations import DURATION_MS_MAX, duration, duration_ms


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        ("PT0S", 0),
        ("PT0.5S", 500),
        ("PT0,5S", 500),
        ("PT2S", 2000),
        ("PT1M", 60_000),
        ("PT1.5M", 90_000),
        ("PT1H2M3S", 3_723_000),
        ("P1D", 86_400_000),
        ("P1DT1H", 90_000_000),
        ("P2W", 1_209_600_000),
        ("PT0.0001S", 1),
    ],
)
def test_a_duration_means_so_many_milliseconds(written: str, milliseconds: int) -> None:
    assert duration_ms(written) == milliseconds


@pytest.mark.parametrize(
    "written",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "1s",
        "PT1",
        "PT-1S",
        "-PT1S",
        "P1Y",
        "P1M",
        "PT1S ",
        "pt1s",
        "PT1.5M1S",
        "PT1S1M",
        "PT1.S",
        "PT.5S",
        "P1W1D",
        "P400D",
        "PT٣S",
    ],
)
def test_a_text_that_is_not_a_duration_is_refused_with_the_valid_form(written: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        duration_ms(written)


@given(st.integers(0, DURATION_MS_MAX))
def test_written_durations_are_read_back(milliseconds: int) -> None:
    assert duration_ms(duration(milliseconds)) == milliseconds


@given(st.text(alphabet="PTWDHMS0123456789.,", max_size=12))
def test_any_text_is_a_duration_or_refused(written: str) -> None:
    with contextlib.suppress(ValueError):
        assert 0 <= duration_ms(written) <= DURATION_MS_MAX
