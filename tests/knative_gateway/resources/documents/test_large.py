"""JSON of large documents in pieces: the same text and the same documents as those of the library."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.resources.documents import large
from knative_gateway.resources.documents.large import (
    PIECE_CHARACTERS,
    PIECE_VALUES,
    is_large,
    json_pieces,
    read_large,
)
from tests.knative_gateway.resources.documents.test_bounds import count
from tests.knative_gateway.resources.test_objects import JSON


def compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


@given(JSON)
def test_a_small_document_is_one_piece(document: object) -> None:
    assert not is_large(document)
    assert list(json_pieces(document)) == [compact(document)]


@given(JSON, st.integers(1, 3))
def test_the_pieces_are_the_text_of_the_library(document: object, size: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(large, "PIECE_VALUES", size)
        patched.setattr(large, "PIECE_CHARACTERS", size)
        assert "".join(json_pieces(document)) == compact(document)


@given(JSON)
def test_a_large_text_is_read_as_by_the_library(document: object) -> None:
    assert read_large(json.dumps(document)) == document


@pytest.mark.parametrize("text", ["", "[1", '{"a":}', '{"a" 1}', "[1,]", "nul", '"a', "{} {}"])
def test_a_text_that_is_not_json_has_the_error_of_the_library(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as expected:
        json.loads(text)
    with pytest.raises(ValueError, match=r".") as found:
        read_large(text)
    assert str(found.value) == str(expected.value)


WIDE: dict[str, Any] = {
    "members": {f"k{number}": "x" * 60 for number in range(5000)},
    "items": list(range(5000)),
    "nested": [{"a": {"b": [number]}} for number in range(1000)],
    "text": "é" * (3 * PIECE_CHARACTERS + 1),
    "last": {},
}


def test_no_call_of_the_encoder_handles_much(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def write(document: object) -> str:
        calls.append(document)
        return compact(document)

    monkeypatch.setattr(large, "_write", write)
    assert "".join(json_pieces(WIDE)) == compact(WIDE)
    assert max(map(count, calls)) <= PIECE_VALUES + 1
    assert max(len(call) for call in calls if isinstance(call, str)) <= PIECE_CHARACTERS
    assert len(calls) < 1500, "few calls of the encoder are as fast as one"


def test_the_decoder_in_c_reads_no_objects_and_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    def scan(_context: object) -> None:
        raise AssertionError

    monkeypatch.setattr(json.decoder.scanner, "c_make_scanner", scan)  # type: ignore[attr-defined]
    assert read_large(json.dumps(WIDE)) == WIDE


@pytest.mark.parametrize(
    "document",
    [
        [0] * (PIECE_VALUES + 1),
        dict.fromkeys(map(str, range(PIECE_VALUES + 1))),
        [[0] * PIECE_VALUES, [0] * PIECE_VALUES],
        "x" * (PIECE_CHARACTERS + 1),
        {"x" * (PIECE_CHARACTERS + 1): 1},
        [["x"] * 2, "x" * PIECE_CHARACTERS],
    ],
)
def test_values_and_characters_make_a_document_large(document: object) -> None:
    assert is_large(document)
