"""JSON of large documents without long calls into C. Pure.

A call of the library's encoder or decoder keeps the interpreter until it has finished, also in a thread: 10
to 60 ms for an object of the largest size. Here no call handles more than `PIECE_VALUES` values or
`PIECE_CHARACTERS` characters of texts, so other threads and steps run in between.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from json import scanner
from typing import Any, Final

PIECE_VALUES: Final = 100
PIECE_CHARACTERS: Final = 64 << 10
INLINE_CHARACTERS: Final = 4 << 10
"""JSON text up to this length is small, whatever is in it: decoding and checking it takes at most a
millisecond.
"""
_write: Final[Callable[[object], str]] = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def is_large(
    document: object, *, values_max: int = PIECE_VALUES, characters_max: int = PIECE_CHARACTERS
) -> bool:
    """Return whether a document has more values, or more characters of texts, than these numbers."""
    waiting, values, characters = [document], values_max, characters_max
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            characters -= len(value)
        elif isinstance(value, dict):
            values -= len(value)
            if values >= 0:
                waiting += value.values()
                for name in value:
                    characters -= len(name)
        elif isinstance(value, list | tuple):
            values -= len(value)
            if values >= 0:
                waiting += value
        if values < 0 or characters < 0:
            return True
    return False


def json_pieces(document: object) -> Iterator[str]:
    """Yield the JSON text of a document, in ASCII and without spaces. A small document is one piece."""
    if not is_large(document):
        yield _write(document)
    elif isinstance(document, str):
        yield '"'
        for start in range(0, len(document), PIECE_CHARACTERS):
            yield _write(document[start : start + PIECE_CHARACTERS])[1:-1]
        yield '"'
    else:
        assert isinstance(document, dict | list | tuple)
        yield from _members(document)


def _members(document: dict[str, object] | Sequence[object]) -> Iterator[str]:
    """Yield the JSON text of an object or a list, whose members are encoded together as far as they are
    small.
    """
    is_object = isinstance(document, dict)
    members: Iterator[Any] = iter(document.items() if isinstance(document, dict) else document)
    start, end = "{}" if is_object else "[]"
    while part := list(islice(members, PIECE_VALUES)):
        together = dict(part) if is_object else part
        if not is_large(together):
            yield start + _write(together)[1:-1]
            start = ","
            continue
        for member in part:
            name, value = member if is_object else ("", member)
            yield f"{start}{_write(name)}:" if is_object else start
            start = ","
            yield from json_pieces(value)
    yield end


def read_large(text: str, **hooks: Any) -> Any:
    """Return the document of a JSON text. `hooks`: those of `json.JSONDecoder`.

    Objects and lists are read by the library's own decoder in Python, which is slower than the one in C.

    Raises:
      ValueError: the text is not JSON.
      RecursionError: it is nested too deep.
    """
    decoder = json.JSONDecoder(**hooks)
    # It takes `parse_object` and `parse_array` of the decoder, which are functions in Python.
    decoder.scan_once = scanner.py_make_scanner(decoder)  # type: ignore[attr-defined]
    return decoder.decode(text)
