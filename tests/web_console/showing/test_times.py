"""Times as people type them."""

import pytest

from web_console.showing.times import time_ms

NOW_MS = 1_795_242_600_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-11-21T06:30", NOW_MS),
        ("2026-11-21 06:30:00Z", NOW_MS),
        ("2026-11-21T07:30+01:00", NOW_MS),
        ("1795242600000", NOW_MS),
        ("-15m", NOW_MS - 900_000),
        (" -2d ", NOW_MS - 172_800_000),
    ],
)
def test_a_time_has_several_forms(text: str, ms: int) -> None:
    assert time_ms(text, NOW_MS) == ms


@pytest.mark.parametrize("text", ["", "yesterday", "-15", "15m", "2026-13-01", "9" * 5000])
def test_what_is_not_a_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="-15m"):
        time_ms(text, NOW_MS)
