"""Invalid settings are reported in plain words."""

from enum import StrEnum

import pytest
from pydantic import BaseModel, ByteSize, Field, ValidationError, field_validator

from service_parts.settings.reasons import reason


class Kind(StrEnum):
    ONE = "one"
    OTHER = "other"


class Inner(BaseModel):
    name: str = "x"


class Model(BaseModel):
    count: int = Field(default=2, ge=1, le=9)
    share: float = Field(default=0.5, gt=0, lt=1)
    segment_bytes: int = Field(default=1 << 20, ge=1 << 20, le=3 << 30)
    body: ByteSize = ByteSize(1)
    kind: Kind = Kind.ONE
    flag: bool = False
    texts: tuple[str, ...] = Field(default=(), max_length=1)
    inner: Inner = Inner()
    word: str = Field(default="a", min_length=1, max_length=3)

    @field_validator("word")
    @classmethod
    def _word(cls, value: str) -> str:
        if value == "bad":
            message = "'bad' is not a word"
            raise ValueError(message)
        return value


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("count", 0, "must be at least 1 (got 0)"),
        ("count", 10, "must be at most 9 (got 10)"),
        ("count", "many", "must be a whole number (got 'many')"),
        ("share", 0, "must be greater than 0.0 (got 0)"),
        ("share", 1, "must be less than 1.0 (got 1)"),
        ("share", "x", "must be a number (got 'x')"),
        ("segment_bytes", 5, "must be at least 1MiB (got 5)"),
        ("segment_bytes", 1 << 40, "must be at most 3GiB (got 1099511627776)"),
        ("body", "1XB", "must be a size, for example 1MiB (got '1XB')"),
        ("kind", "both", "must be 'one' or 'other' (got 'both')"),
        ("flag", "maybe", "must be true or false (got 'maybe')"),
        ("texts", 1, "must be a list (got 1)"),
        ("texts", ["a", "b"], "must have at most 1 entries (got ['a', 'b'])"),
        ("inner", 1, "must be a table (got 1)"),
        ("word", "", "must have at least 1 characters (got '')"),
        ("word", "bad", "'bad' is not a word"),
    ],
)
def test_an_invalid_value_is_reported_with_the_valid_ones(name: str, value: object, words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Model.model_validate({name: value})
    assert reason(refused.value.errors()[0]) == words


def test_unknown_kinds_of_faults_keep_their_text() -> None:
    assert reason({"type": "something_new", "loc": ("a",), "msg": "Words", "input": 1}) == "Words"


def test_a_setting_that_is_missing_has_no_value_to_show() -> None:
    assert reason({"type": "missing", "loc": ("a",), "msg": "Field required", "input": {}}) == "is required"
