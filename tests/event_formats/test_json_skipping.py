"""The end of a JSON value: the same as the library's parser finds, in short steps."""

import json
from collections.abc import Generator
from json.decoder import JSONDecodeError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from event_formats.json_skipping import DEPTH_MAX, STEP_VALUES, value_end

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(), inner, max_size=12),
    max_leaves=60,
)


def steps_and_end(text: str, at: int = 0) -> tuple[int, int]:
    steps: Generator[None, None, int] = value_end(text, at)
    count = 1
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as stop:
            return count, stop.value


def end_of(text: str, at: int = 0) -> int | None:
    try:
        return steps_and_end(text, at)[1]
    except JSONDecodeError:
        return None


def _refuse(name: str) -> object:
    raise ValueError(name)


def end_by_library(text: str, at: int = 0) -> int | None:
    try:
        return json.JSONDecoder(parse_constant=_refuse).raw_decode(text, at)[1]
    except ValueError:
        return None


@given(VALUES, st.sampled_from([None, 0, 1]), st.booleans(), st.sampled_from(["", " ", "]", ',"x"', "\n}"]))
def test_the_end_of_a_value_is_found(value: object, indent: int | None, ascii_: bool, after: str) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_)
    assert end_of(f"[{text}{after}", 1) == len(text) + 1


@given(VALUES, st.data())
def test_every_text_has_the_end_that_the_library_finds(value: object, data: st.DataObject) -> None:
    """Also one that is not JSON: then neither finds an end."""
    text = json.dumps(value, indent=data.draw(st.sampled_from([None, 1])))
    at = data.draw(st.integers(0, len(text)))
    put = data.draw(
        st.sampled_from(
            ["", *'[]{}",:\\0-.eEtfn \n\x00', "\\u12", "NaN", "-Infinity", "\\x", "01", "1.", "\x7f"]
        )
    )
    broken = text[:at] + put + text[at + data.draw(st.integers(0, 2)) :]
    assert end_of(broken) == end_by_library(broken)


@pytest.mark.parametrize(
    "value",
    [
        [1] * 5_000,
        [{"a": {}}] * 15_000,
        [[[[1]]]] * 1_000,
        {f"k{n}": [n] * 20 for n in range(500)},
        ["\n" * 30] * 500,
    ],
)
def test_a_large_value_takes_many_steps(value: object) -> None:
    text = json.dumps(value)
    steps, end = steps_and_end(text)
    assert end == len(text)
    assert steps > len(text) / (100 * STEP_VALUES)


def test_values_must_not_be_nested_too_deeply() -> None:
    def nested(depth: int) -> str:
        return "[" * depth + "]" * depth

    assert end_of(nested(DEPTH_MAX)) == 2 * DEPTH_MAX
    with pytest.raises(RecursionError):
        end_of(nested(DEPTH_MAX + 3))


@pytest.mark.parametrize(
    "text", ["", "]", "[", "[1", "[1,", '{"a"', '{"a":', '{"a":1', '{"a":1,', '"', "nul", "{1:2}", "[1 2]"]
)
def test_a_text_that_ends_too_early_has_no_end(text: str) -> None:
    assert end_of(text) is None
