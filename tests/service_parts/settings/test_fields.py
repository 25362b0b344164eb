"""Settings read durations and sizes from numbers and from text, and refuse names that they do not know."""

import pytest
from pydantic import ValidationError

from service_parts.settings.fields import Bytes, Milliseconds, Settings
from service_parts.settings.units import BYTES_MAX, MILLISECONDS_MAX


class Some(Settings):
    age: Milliseconds = 0
    size: Bytes = 0
    rate: float = 0.0


def test_numbers_and_text_are_read_alike() -> None:
    assert Some.model_validate({"age": "7d", "size": "10GiB"}) == Some(age=604_800_000, size=10 << 30)


@pytest.mark.parametrize(
    "given",
    [
        {"age": True},
        {"size": True},
        {"age": MILLISECONDS_MAX + 1},
        {"size": BYTES_MAX + 1},
        {"agee": 1},
        {"rate": float("inf")},
    ],
)
def test_a_text_that_is_not_a_quantity_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Some.model_validate(given)
