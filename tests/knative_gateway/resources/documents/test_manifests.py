"""YAML and JSON as people write objects."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.resources.documents.manifests import (
    ManifestError,
    objects,
    read_json,
    read_yaml,
    written_yaml,
)

_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)  # larger ones become floating-point numbers: see below
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Co", "Cn"))),
    lambda below: (
        st.lists(below, max_size=4) | st.dictionaries(st.text("abc.-/", max_size=8), below, max_size=4)
    ),
    max_leaves=10,
)


@given(_JSON.filter(lambda value: value is not None))
def test_written_documents_are_read_back(document: object) -> None:
    assert read_yaml(written_yaml(document).encode()) == [document]
    assert read_json(json.dumps(document).encode()) == document


@pytest.mark.parametrize("read", [read_json, lambda text: read_yaml(text)[0]])
def test_numbers_are_of_64_bits_or_floating(read: Callable[[bytes], object]) -> None:
    assert read(b'{"a": 9223372036854775807, "b": -9223372036854775808}') == {
        "a": (1 << 63) - 1,
        "b": -(1 << 63),
    }
    found = read(b'{"a": 9223372036854775808, "b": 1000000000000000000000000000000, "c": 1.0e+300}')
    assert found == {"a": 2.0**63, "b": 1e30, "c": 1e300}
    assert all(isinstance(value, float) for value in found.values())


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": 1e999}',
        b'{"a": -1e999}',
        b'{"a": NaN}',
        b'{"a": ' + b"9" * 400 + b"}",
        b'{"a":' * 101 + b"1" + b"}" * 101,
        b"[1," * 500,
    ],
)
def test_json_that_others_cannot_read_is_refused(text: bytes) -> None:
    with pytest.raises(ManifestError):
        read_json(text)


def test_yaml_is_json_here() -> None:
    text = (
        b"since: 2026-01-31\nat: 2026-01-31T12:00:00Z\n1: one\nyes: no\nnull: ~\n2.5: x\nbinary: !!str"
        b" x\nsum: =\n"
    )
    [read] = read_yaml(text)
    assert read == {
        "since": "2026-01-31",
        "at": "2026-01-31T12:00:00Z",
        "1": "one",
        "yes": False,
        "null": None,
        "2.5": "x",
        "binary": "x",
        "sum": "=",
    }


def test_texts_that_others_read_as_booleans_are_quoted() -> None:
    assert written_yaml({"y": "n", "a": "on", "b": "x"}) == "'y': 'n'\na: 'on'\nb: x\n"


@pytest.mark.parametrize("text", ["\x85a", "a\x85 b", "\u2028", "a\u2029", "'\"\x85\\N"])
def test_line_breaks_of_yaml_1_1_are_escaped(text: str) -> None:
    """For YAML 1.2, and so for kubectl, they are ordinary characters."""
    written = written_yaml({"a": text})
    assert read_yaml(written.encode()) == [{"a": text}]
    assert not set(written) & set("\x85\u2028\u2029")


@pytest.mark.parametrize(
    "text", ["0o17", "0b1", "0x1f", "017", "1e3", ".inf", "~", "", "null", "Yes", "-1_0", "+5", "0.5.0"]
)
def test_a_text_that_looks_like_another_value_stays_a_text(text: str) -> None:
    assert read_yaml(written_yaml({"a": text}).encode()) == [{"a": text}]


def test_many_documents_are_read_and_empty_ones_left_out() -> None:
    assert read_yaml(b"---\na: 1\n---\n# nothing\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]
    assert read_yaml(b"") == []


def test_an_alias_stands_for_what_it_names() -> None:
    read = read_yaml(b"a: &x {b: 1}\nc: *x\nd: &y {<<: *x, b: 2, e: 3}\nf: {<<: *y, e: 4}\n")
    assert read == [{"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 2, "e": 3}, "f": {"b": 2, "e": 4}}]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"a: [", "not YAML"),
        (b"\xff\xfe\x00", "not YAML"),
        (b"a: !!python/object/apply:os.system [x]", "not YAML"),
        (b"a: !!binary aGk=", "not YAML"),
        (b"a: &a [*a]", "nested"),
        (b"a: 1\nb: 2\na: 3", "the key 'a' occurs twice"),
        (b"[a]: b", "a key must be a text"),
        (b"a: .nan", "not JSON"),
        (b"a: -.inf", "not JSON"),
        (b"[" * 5000, "nested"),
        (
            b"x0: &x0 [1,1,1,1,1,1,1,1,1,1]\n"
            + b"".join(
                b"x%d: &x%d [%s]\n" % (n, n, b",".join([b"*x%d" % (n - 1)] * 10)) for n in range(1, 9)
            ),
            "more than",
        ),
    ],
)
def test_a_text_that_is_not_yaml_or_too_large_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(ManifestError, match=words):
        read_yaml(text)


@pytest.mark.parametrize("text", [b"", b"{", b"NaN", b"Infinity", b"[" * 100_000, b"\xff", b"1" * 10_000])
def test_a_text_that_is_not_json_is_refused(text: bytes) -> None:
    with pytest.raises(ManifestError):
        read_json(text)


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_read_and_nothing_else(text: bytes) -> None:
    for read in (read_yaml, read_json):
        try:
            json.dumps(read(text))
        except ManifestError:
            continue


def test_lists_are_taken_apart() -> None:
    one = {"apiVersion": "v1", "kind": "ConfigMap"}
    assert (
        objects(
            [
                one,
                {
                    "apiVersion": "v1",
                    "kind": "List",
                    "items": [one, {"apiVersion": "v1", "kind": "ConfigMapList", "items": [one]}],
                },
            ]
        )
        == [one] * 3
    )
    for wrong in (1, {}, {"kind": "x"}, {"apiVersion": "v1", "kind": "List", "items": [1]}):
        with pytest.raises(ManifestError, match="apiVersion and kind"):
            objects([wrong])


@pytest.mark.parametrize(
    "written", [b'{"a": "\\ud800"}', b'{"\\uDFFF": 1}', b'[["\\ud800x"]]', b'{"a": "\\udc00\\ud800"}']
)
def test_half_a_character_is_refused(written: bytes) -> None:
    """The text could be stored, but could not be sent or measured as UTF-8."""
    with pytest.raises(ManifestError, match="lone surrogate"):
        read_json(written)
    with pytest.raises(ManifestError):
        read_yaml(written)


def test_two_halves_are_a_character() -> None:
    assert read_json(b'{"a": "\\ud83d\\ude00"}') == {"a": "\U0001f600"}


def test_json_is_utf_8() -> None:
    """RFC 8259, 8.1. A surrogate in UTF-8 would be half of a character in the object."""
    with pytest.raises(ManifestError, match="it is not JSON: 'utf-8' codec can't decode"):
        read_json(b'"\xed\xa0\x80"')
