"""Durations and sizes are read as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service_parts.settings.units import byte_count, duration_ms


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("500ms", 500),
        ("30s", 30_000),
        ("30m", 1_800_000),
        ("12h", 43_200_000),
        ("7d", 604_800_000),
        ("2w", 1_209_600_000),
    ],
)
def test_a_duration_is_a_number_with_a_unit(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("1h30m", 5_400_000), ("1.5h", 5_400_000), (" 1s500ms ", 1500), ("0.1s", 100)]
)
def test_a_duration_may_have_parts_and_fractions(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "7", "d", "7 days", "7D", "-1h", "1h 30m", "1e3s", "forever"])
def test_a_duration_without_a_unit_or_with_an_unknown_one_is_refused_with_the_units_named(text: str) -> None:
    with pytest.raises(ValueError, match="ms, s, m, h, d, w"):
        duration_ms(text)


@given(st.integers(0, 10**12))
def test_any_number_of_milliseconds_is_read_as_itself(milliseconds: int) -> None:
    assert duration_ms(f"{milliseconds}ms") == milliseconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1000000", 10**6),
        ("64KiB", 65_536),
        ("512MiB", 512 << 20),
        ("10GiB", 10 << 30),
        ("10gb", 10**10),
        ("1.5 kB", 1500),
        ("7B", 7),
    ],
)
def test_a_size_is_a_number_of_bytes_or_has_a_unit(text: str, size: int) -> None:
    assert byte_count(text) == size


@pytest.mark.parametrize("text", ["", "K", "10K", "10 G", "-1", "1,000", "1e6", "ten"])
def test_a_size_with_a_unit_that_has_two_meanings_is_refused_with_the_units_named(text: str) -> None:
    with pytest.raises(ValueError, match="KiB, MiB, GiB"):
        byte_count(text)


@given(st.integers(0, 10**18))
def test_any_number_of_bytes_is_read_exactly(size: int) -> None:
    assert byte_count(str(size)) == size
    assert byte_count(f"{size}KiB") == size * 1024
