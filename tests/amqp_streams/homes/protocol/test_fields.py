"""Fields of other nodes: right ones, missing ones, and those of a wrong type."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.homes.protocol.fields import WHOLE_MAX, Fields, encoded
from amqp_streams.homes.protocol.frames import FrameError

Read = Callable[[Fields], object]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
READERS: dict[str, Read] = {
    "whole": lambda fields: fields.whole("a"),
    "whole_or_none": lambda fields: fields.whole_or_none("a"),
    "text": lambda fields: fields.text("a", 10),
    "text_or_none": lambda fields: fields.text_or_none("a"),
    "flag": lambda fields: fields.flag("a"),
    "wholes": lambda fields: fields.wholes("a"),
    "pairs": lambda fields: fields.pairs("a"),
    "pair_or_none": lambda fields: fields.pair_or_none("a"),
    "inner": lambda fields: fields.inner("a"),
    "inner_or_none": lambda fields: fields.inner_or_none("a"),
    "inner_list": lambda fields: fields.inner_list("a"),
    "values": lambda fields: fields.values("a"),
}


def fields(text: str) -> Fields:
    return Fields.of(text.encode(), "report")


def test_fields_are_read() -> None:
    found = fields(
        '{"number":1,"text":"x","flag":true,"wholes":[1,2],"pair":[1,2],"pairs":[[1,2],[3,4]],'
        '"inner":{"a":5},"list":[{"a":6}],"values":{"epoch":"7","n":8},'
        '"unknown":{"of":["a later","version"]}}'
    )
    assert found.whole("number") == found.whole_or_none("number") == 1
    assert found.text("text", 1) == found.text_or_none("text") == "x"
    assert found.flag("flag")
    assert found.wholes("wholes") == found.pair_or_none("pair") == (1, 2)
    assert found.pairs("pairs") == ((1, 2), (3, 4))
    assert found.inner("inner").whole("a") == 5
    inner = found.inner_or_none("inner")
    assert inner is not None
    assert inner.whole("a") == 5
    assert [each.whole("a") for each in found.inner_list("list")] == [6]
    assert found.values("values") == {"epoch": "7", "n": 8}


def test_what_is_missing_is_the_usual_value_or_an_error() -> None:
    found = fields("{}")
    for name in ("whole_or_none", "text_or_none", "pair_or_none", "inner_or_none"):
        assert READERS[name](found) is None
    assert found.wholes("a") == ()
    assert found.pairs("a") == ()
    assert found.inner_list("a") == []
    assert found.values("a") == {}
    assert not found.flag("a")
    for name in ("whole", "text", "inner"):
        with pytest.raises(FrameError, match=r"^report\.a is missing$"):
            READERS[name](found)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("whole", "-1", r"report.a must be a whole number from 0 to \d+ \(got -1\)"),
        ("whole", "1.0", r"got 1.0"),
        ("whole", "true", r"got True"),
        ("whole", '"1"', r"got '1'"),
        ("whole", str(WHOLE_MAX + 1), f"got {WHOLE_MAX + 1}"),
        ("whole", "9" * 4000, "got a number with more than 20 digits"),
        ("whole", "NaN", "got nan"),
        ("whole", "[" * 50 + "]" * 50, "got a list with 1 entries"),
        ("text", "1", r"a text of at most 10 characters \(got 1\)"),
        ("text", f'"{"x" * 1000}"', f"got '{'x' * 40}'"),
        ("text", '"\\ud800"', "a text in Unicode"),
        ("text_or_none", '{"x":1}', r"must be a text \(got an object with 1 entries\)"),
        ("flag", "1", "true or false"),
        ("wholes", "[1,-1]", "got -1"),
        ("wholes", "{}", "report.a must be a list"),
        ("pairs", "[[1,2,3]]", "pairs of whole numbers"),
        ("pairs", "[1]", "pairs of whole numbers"),
        ("pair_or_none", "[1]", "pairs of whole numbers"),
        ("inner", "[]", "report.a must be a JSON object"),
        ("inner_list", "[{},1]", r"report.a\[1\] must be a JSON object \(got 1\)"),
        ("values", "[]", "report.a must be a JSON object"),
        ("values", '{"x":[]}', "report.a.'x' must be a whole number"),
    ],
)
def test_a_value_of_a_wrong_type_is_named_and_shown_shortly(name: str, value: str, words: str) -> None:
    with pytest.raises(FrameError, match=words) as raised:
        READERS[name](fields(f'{{"a":{value}}}'))
    assert len(str(raised.value)) < 150
    assert str(raised.value).isascii()


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 1_000_000, b"9" * 5000, b'{"a":1}x'])
def test_what_is_not_json_is_an_error_without_the_bytes(body: bytes) -> None:
    with pytest.raises(FrameError, match=r"^report is not valid JSON \(\w+\)$"):
        Fields.of(body, "report")


@given(JSON, st.sampled_from(sorted(READERS)))
def test_whatever_the_json_is_the_only_error_is_a_short_one(value: object, name: str) -> None:
    error = None
    try:
        READERS[name](Fields({"a": value}, "report"))
    except FrameError as raised:
        error = str(raised)
    assert error is None or (error.startswith("report.a") and len(error) < 300)


def test_json_is_short() -> None:
    assert encoded({"a": [1, "ä"]}) == '{"a":[1,"ä"]}'
