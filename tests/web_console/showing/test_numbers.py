"""Numbers as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from web_console.showing import numbers


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (10 << 30, "10.0 GiB"),
        (5 << 40, "5.0 TiB"),
        (None, "-"),
    ],
)
def test_sizes_have_binary_units(given: int | None, words: str) -> None:
    assert numbers.size(given) == words


def test_counts_and_rates_have_separators_and_small_rates_a_decimal() -> None:
    assert numbers.count(1234567) == "1,234,567"
    assert numbers.count(None) == "-"
    assert [numbers.rate(rate) for rate in (None, 0, 0.5, 99.94, 100, 123456.7)] == [
        "-",
        "0/s",
        "0.5/s",
        "99.9/s",
        "100/s",
        "123,457/s",
    ]


def test_durations_are_in_the_notation_of_the_settings() -> None:
    assert numbers.duration(7 * 86_400_000) == "7d"
    assert numbers.duration(5_400_500) == "1h30m500ms"
    assert numbers.duration(None) == "forever"
    assert numbers.kept(60_000, 1 << 20) == "1m, 1.0 MiB a partition"
    assert numbers.kept(None, None) == "forever"


def test_times_keep_their_milliseconds() -> None:
    assert numbers.time(1_795_242_600_007) == "2026-11-21 06:30:00.007Z"
    assert numbers.time(None) == "-"


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_time_on_the_wire_has_a_text(ms: int) -> None:
    assert numbers.time(ms)


@pytest.mark.parametrize(
    ("given", "number"),
    [
        ("7", 7),
        ("0", 1),
        ("999", 100),
        (None, 20),
        ("", 20),
        ("-1", 20),
        ("x", 20),
        ("²", 20),
        ("9" * 5000, 20),
    ],
)
def test_a_number_that_a_person_typed_is_bounded(given: str | None, number: int) -> None:
    assert numbers.bounded(given, 20, 100) == number
