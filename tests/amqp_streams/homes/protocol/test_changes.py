"""Changes and their outcomes as bytes."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.homes.messages import Asked, Change, Outcome
from amqp_streams.homes.protocol.changes import (
    ASKED_BYTES_MAX,
    CURSOR_CHARACTERS_MAX,
    OUTCOME_BYTES_MAX,
    asked_body,
    asked_of,
    outcome_body,
    outcome_of,
)
from amqp_streams.homes.protocol.frames import FrameError
from amqp_streams.streams.consuming.cursors import NAME_CHARACTERS_MAX, Cursor, encoded, link_key

NUMBERS = st.integers(0, 2**63 - 1)
TEXTS = st.text(st.characters(codec="utf-8"))
NAMES = st.none() | TEXTS
ASKED = st.builds(
    Asked,
    NUMBERS,
    st.integers(0, BUCKETS - 1),
    st.sampled_from(Change),
    TEXTS,
    TEXTS,
    NAMES,
    NAMES,
    NAMES,
    NAMES,
    st.frozensets(TEXTS, max_size=4),
    st.lists(st.tuples(NUMBERS, NUMBERS), max_size=4).map(tuple),
)
OUTCOME = st.builds(Outcome, NUMBERS, st.integers(0, 999), TEXTS, NAMES, st.booleans())
PARTITIONS_MAX = 1024


@given(ASKED)
def test_a_change_is_read_as_it_was_written(asked: Asked) -> None:
    assert asked_of(asked_body(asked)) == asked


@given(OUTCOME)
def test_an_outcome_is_read_as_it_was_written(result: Outcome) -> None:
    assert outcome_of(outcome_body(result)) == result


def test_the_largest_cursor_fits_in_both_directions() -> None:
    name = "\x01" * NAME_CHARACTERS_MAX
    positions = tuple((index, 2**63 - 1) for index in range(PARTITIONS_MAX))
    cursor = encoded(Cursor(link_key("i", name, name), name, dict(positions))).decode()
    assert len(cursor) <= CURSOR_CHARACTERS_MAX
    result = Outcome(1, 200, "moved", cursor)
    assert outcome_of(outcome_body(result)) == result
    asked = Asked(1, 0, Change.MOVE, "cursor", "i", None, name, name, name, positions=positions)
    assert asked_of(asked_body(asked)) == asked


def test_a_longer_cursor_and_description_are_left_out() -> None:
    result = outcome_of(outcome_body(Outcome(1, 200, "x" * 5000, "y" * (CURSOR_CHARACTERS_MAX + 1))))
    assert result.cursor is None
    assert len(result.description) == 2000


@pytest.mark.parametrize(("read", "most"), [(asked_of, ASKED_BYTES_MAX), (outcome_of, OUTCOME_BYTES_MAX)])
def test_a_body_has_a_largest_size(read: object, most: int) -> None:
    assert callable(read)
    with pytest.raises(FrameError, match=f"has {most + 1} bytes, and may have {most}"):
        read(b" " * (most + 1))


def test_a_change_of_a_later_version_is_answered_and_not_guessed() -> None:
    body = json.dumps({"number": 7, "change": "merge", "with": "other"}).encode()
    result = asked_of(body)
    assert isinstance(result, Outcome)
    assert (result.number, result.status) == (7, 501)
    assert "upgrade it" in result.description


def test_fields_of_a_later_version_are_ignored() -> None:
    asked = Asked(1, 0, Change.END, "cursor", "i", None, "c", "l", None)
    assert asked_of(asked_body(asked)[:-1] + b',"later":[1]}') == asked


@given(
    st.binary()
    | st.dictionaries(TEXTS, NUMBERS | TEXTS | st.none()).map(lambda each: json.dumps(each).encode())
)
def test_garbage_gives_the_documented_error_only(body: bytes) -> None:
    for read in (asked_of, outcome_of):
        with contextlib.suppress(FrameError):
            read(body)
