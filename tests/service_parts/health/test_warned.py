"""Warnings that services share: each is there only as long as its fact."""

import pytest

from service_parts.health.warned import (
    DISK_BYTES,
    DISK_SHARE,
    EXPIRES_MS,
    NEARLY,
    counted,
    is_nearly_full,
    of_certificate,
    of_descriptors,
    space,
)

NOW = 1_700_000_000_000
DAY = 86_400_000
TIB = 1 << 40


@pytest.mark.parametrize(
    ("free", "size", "found"),
    [
        (DISK_BYTES, TIB, False),
        (DISK_BYTES - 1, TIB, True),
        (DISK_SHARE * (1 << 30), 1 << 30, False),
        (DISK_SHARE * (1 << 30) - 1, 1 << 30, True),
        (0, 1, True),
        (None, 1, False),
        (1, None, False),
    ],
)
def test_a_small_disk_is_nearly_full_by_its_share_and_a_large_one_by_its_bytes(
    free: int | None, size: int | None, found: bool
) -> None:
    assert is_nearly_full(free, size) is found


@pytest.mark.parametrize(
    ("used", "most", "count"),
    [(NEARLY * 1000, 1000, 1), (NEARLY * 1000 - 1, 1000, 0), (5, None, 0), (None, 5, 0)],
)
def test_descriptors_are_warned_of_before_they_end(used: int | None, most: int | None, count: int) -> None:
    assert len(list(of_descriptors(used, most))) == count


def test_a_certificate_is_warned_of_two_weeks_before_its_end() -> None:
    assert not list(of_certificate(None, NOW, remedy="r"))
    assert not list(of_certificate(NOW + EXPIRES_MS, NOW, remedy="r"))
    (soon,) = of_certificate(NOW + DAY, NOW, remedy="replace it")
    assert (soon.text, soon.remedy) == (
        "The certificate of the TLS listeners expires in 1 day.",
        "replace it",
    )
    assert not soon.is_error
    (late,) = of_certificate(NOW, NOW, remedy="r")
    assert late.text.endswith("has expired.")
    assert late.is_error


def test_numbers_have_their_nouns_and_units() -> None:
    assert counted(1, "link", "links") == "1 link"
    assert counted(1234, "link", "links") == "1,234 links"
    assert space(5 << 20) == "5 MiB"
    assert space(3 << 29) == "1.5 GiB"
