"""Offsets of queries as JSON, and positions as users write them."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connector.errors import OffsetError
from spark_connector.planning.offsets import (
    OFFSET_MAX,
    Edge,
    Offsets,
    Positions,
    StreamOffsets,
    Times,
    parse_positions,
    parse_times,
)

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
numbers = st.dictionaries(st.integers(0, 40), st.integers(0, OFFSET_MAX), max_size=12)
streams = st.dictionaries(
    names, st.builds(StreamOffsets, st.none() | st.text(max_size=8), numbers), max_size=4
)
offsets = st.builds(
    Offsets, streams, initial=st.booleans(), begun=st.dictionaries(names, numbers, max_size=3)
)

K = TypeVar("K")
V = TypeVar("V")


@given(offsets)
def test_offsets_read_back_from_their_json_are_the_same(written: Offsets) -> None:
    text = json.dumps(written.json())
    assert Offsets.of(json.loads(text)) == written
    assert json.dumps(Offsets.of(json.loads(text)).json()) == text


@given(offsets, st.randoms())
def test_equal_offsets_are_equal_strings_however_they_were_built(one: Offsets, chance: object) -> None:
    """Spark compares the strings: a difference in order would be a batch without a row."""

    def shuffled(given: Mapping[K, V]) -> dict[K, V]:
        entries = list(given.items())
        chance.shuffle(entries)  # type: ignore[attr-defined]
        return dict(entries)

    other = Offsets(
        shuffled(
            {
                name: StreamOffsets(found.incarnation, shuffled(found.next))
                for name, found in one.streams.items()
            }
        ),
        initial=one.initial,
        begun=shuffled({name: shuffled(found) for name, found in one.begun.items()}),
    )
    assert other == one
    assert other.text() == one.text()


@given(offsets, offsets)
def test_different_offsets_are_different_strings(one: Offsets, other: Offsets) -> None:
    if one != other and (one.begun or not other.begun) and (other.begun or not one.begun):
        assert one.text() != other.text()


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    assert list(
        json.loads(Offsets({"t": StreamOffsets(None, {10: 1, 9: 2, 0: 3})}).text())["streams"]["t"]["next"]
    ) == ["0", "9", "10"]


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"version": True, "streams": {}},
        {"version": 2, "streams": {}},
        {"version": 1},
        {"version": 1, "streams": []},
        {"version": 1, "streams": {"t": 5}},
        {"version": 1, "streams": {"t": {"next": {"x": 1}}}},
        {"version": 1, "streams": {"t": {"next": {"01": 1}}}},
        {"version": 1, "streams": {"t": {"next": {"0": -1}}}},
        {"version": 1, "streams": {"t": {"next": {"0": True}}}},
        {"version": 1, "streams": {"t": {"next": {"0": 10**17}}}},
        {"version": 1, "streams": {"t": {"next": {"0": "7"}}}},
        {"version": 1, "streams": {"t": {"incarnation": 5, "next": {}}}},
        {"version": 1, "streams": {}, "from": {"t": 1}},
    ],
)
def test_texts_that_are_not_offsets_are_an_error_that_names_the_valid_form(value: object) -> None:
    with pytest.raises(OffsetError, match="earliest"):
        Offsets.of(value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_offsets_are_read_or_refused(value: object) -> None:
    for text in (json.dumps(value), str(value)):
        with suppress(OffsetError):
            assert isinstance(parse_positions(text, Edge.EARLIEST), Positions)


def test_positions_are_words() -> None:
    assert parse_positions(" Earliest ", Edge.LATEST) == Positions(Edge.EARLIEST)
    assert parse_positions("latest", Edge.EARLIEST) == Positions(Edge.LATEST)


def test_positions_are_json_as_kafka_s_users_write_it() -> None:
    found = parse_positions(
        '{"t": {"0": 23, "1": -1, "2": -2, "3": "earliest", "4": "latest"}, "u": {"0": 0}}', Edge.EARLIEST
    )
    assert found.others is Edge.EARLIEST
    assert found.named == {
        "t": {0: 23, 1: Edge.LATEST, 2: Edge.EARLIEST, 3: Edge.EARLIEST, 4: Edge.LATEST},
        "u": {0: 0},
    }


END = {"streams": {"t": {"incarnation": "abc", "next": {"0": 5, "1": 7}}}, "version": 1}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(END),
        json.dumps(END | {"from": {"t": {"0": 1}}}),
        json.dumps({"startOffset": None, "endOffset": END}),
        json.dumps({"startOffset": None, "endOffset": json.dumps(END)}),
        json.dumps({"batchId": 3, "sources": [{"endOffset": {"x": 1}}, {"endOffset": END}]}),
    ],
    ids=["an end", "the first end", "a source of lastProgress", "with text", "all of lastProgress"],
)
def test_positions_are_what_progress_prints(text: str) -> None:
    assert parse_positions(text, Edge.EARLIEST) == Positions(Edge.EARLIEST, {"t": {0: 5, 1: 7}}, {"t": "abc"})


def test_a_progress_of_another_source_is_an_error() -> None:
    with pytest.raises(OffsetError, match="no endOffset of this source"):
        parse_positions('{"sources": [{"endOffset": {"topic": {"0": 4}}}]}', Edge.EARLIEST)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lastest", "not earliest, latest or JSON"),
        ("[1]", "not a JSON object"),
        ('{"t": 5}', "'t' is not a JSON object"),
        ('{"t": {"0": -3}}', "-3 is not a position .log 't', partition 0"),
        ('{"t": {"0": 1.5}}', "1.5 is not a position"),
        ('{"t": {"0": true}}', "True is not a position"),
        ('{"t": {"zero": 1}}', "'zero' is not a partition"),
        ("[" * 100_000, "not earliest, latest or JSON"),
    ],
)
def test_an_error_in_positions_names_the_place(text: str, words: str) -> None:
    with pytest.raises(OffsetError, match=words):
        parse_positions(text, Edge.EARLIEST)


def test_times_are_given_for_each_partition() -> None:
    assert parse_times('{"t": {"0": 1700000000000}}', 5) == Times(5, {"t": {0: 1_700_000_000_000}})
    assert parse_times(None, 5) == Times(5)
    with pytest.raises(OffsetError, match="partition 0"):
        parse_times('{"t": {"0": -5}}', None)
