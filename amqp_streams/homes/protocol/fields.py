"""The fields of JSON objects that other nodes send, checked one by one. Pure.

Laws: whatever the bytes are, the only error is `FrameError`, and it names the field. A field that is not
asked for is ignored.
"""

import json
from typing import Final, TypeAlias

from amqp_streams.homes.protocol.frames import FrameError

Json: TypeAlias = dict[str, object]
WHOLE_MAX: Final = 2**64 - 1
_SHOWN_MAX: Final = 40


def encoded(value: object) -> str:
    """The shortest JSON of a value."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Fields:
    """A JSON object. `where`: its path, for errors."""

    __slots__ = ("_values", "_where")

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise _wrong(where, "a JSON object", value)
        self._values: Final[Json] = value
        self._where: Final = where

    @classmethod
    def of(cls, body: bytes, where: str) -> "Fields":
        """The fields of a frame's body.

        Raises:
            FrameError: the body is not a JSON object.
        """
        try:
            value = json.loads(body)
        except (ValueError, RecursionError) as error:
            # The reason can contain the text of the other node.
            message = f"{where} is not valid JSON ({type(error).__name__})"
            raise FrameError(message) from error
        return cls(value, where)

    def whole(self, name: str, most: int = WHOLE_MAX) -> int:
        """A number from 0 to `most`."""
        return _whole(self._required(name), self._path(name), most)

    def whole_or_none(self, name: str, most: int = WHOLE_MAX) -> int | None:
        """A number; None: the field is missing."""
        value = self._values.get(name)
        return None if value is None else _whole(value, self._path(name), most)

    def text(self, name: str, longest: int | None = None) -> str:
        """A text with at most `longest` characters. None: only the frame limits it."""
        return _text(self._required(name), self._path(name), longest)

    def text_or_none(self, name: str, longest: int | None = None) -> str | None:
        """A text; None: the field is missing."""
        value = self._values.get(name)
        return None if value is None else _text(value, self._path(name), longest)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; empty: the field is missing."""
        path = self._path(name)
        return tuple([_text(each, path, None) for each in self._listed(name)])

    def flag(self, name: str) -> bool:
        """True or false; False: the field is missing."""
        value = self._values.get(name, False)
        if not isinstance(value, bool):
            raise _wrong(self._path(name), "true or false", value)
        return value

    def wholes(self, name: str, most: int = WHOLE_MAX) -> tuple[int, ...]:
        """A list of numbers; empty: the field is missing."""
        path = self._path(name)
        return tuple([_whole(each, path, most) for each in self._listed(name)])

    def pairs(self, name: str) -> tuple[tuple[int, int], ...]:
        """A list of pairs of numbers; empty: the field is missing."""
        path = self._path(name)
        return tuple([_pair(each, path) for each in self._listed(name)])

    def pair_or_none(self, name: str) -> tuple[int, int] | None:
        """Two numbers; None: the field is missing."""
        value = self._values.get(name)
        return None if value is None else _pair(value, self._path(name))

    def inner_list(self, name: str) -> "list[Fields]":
        """A list of objects; empty: the field is missing."""
        path = self._path(name)
        return [Fields(each, f"{path}[{index}]") for index, each in enumerate(self._listed(name))]

    def inner(self, name: str) -> "Fields":
        """An object."""
        return Fields(self._required(name), self._path(name))

    def inner_or_none(self, name: str) -> "Fields | None":
        """An object; None: the field is missing."""
        value = self._values.get(name)
        return None if value is None else Fields(value, self._path(name))

    def values(self, name: str) -> dict[str, str | int]:
        """An object of texts and numbers; empty: the field is missing."""
        path, value = self._path(name), self._values.get(name, {})
        if not isinstance(value, dict):
            raise _wrong(path, "a JSON object", value)
        return {
            _text(key, path, None): _text(each, f"{path}.{_shown(key)}", None)
            if isinstance(each, str)
            else _whole(each, f"{path}.{_shown(key)}", WHOLE_MAX)
            for key, each in value.items()
        }

    def error(self, name: str, wanted: str) -> FrameError:
        """An error about a field whose value has the right type."""
        return _wrong(self._path(name), wanted, self._values.get(name))

    def _path(self, name: str) -> str:
        return f"{self._where}.{name}"

    def _required(self, name: str) -> object:
        value = self._values.get(name)
        if value is None:
            message = f"{self._path(name)} is missing"
            raise FrameError(message)
        return value

    def _listed(self, name: str) -> list[object]:
        value = self._values.get(name, [])
        if not isinstance(value, list):
            raise _wrong(self._path(name), "a list", value)
        return value


def _whole(value: object, path: str, most: int) -> int:
    # In Python, true is also the integer 1.
    if type(value) is not int or not 0 <= value <= most:
        raise _wrong(path, f"a whole number from 0 to {most}", value)
    return value


def _pair(value: object, path: str) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise _wrong(path, "pairs of whole numbers", value)
    return _whole(value[0], path, WHOLE_MAX), _whole(value[1], path, WHOLE_MAX)


def _text(value: object, path: str, longest: int | None) -> str:
    if not isinstance(value, str) or (longest is not None and len(value) > longest):
        raise _wrong(
            path, "a text" + (f" of at most {longest} characters" if longest is not None else ""), value
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON can write
        raise _wrong(path, "a text in Unicode", value) from error
    return value


def _wrong(path: str, wanted: str, value: object) -> FrameError:
    return FrameError(f"{path} must be {wanted} (got {_shown(value)})")


def _shown(value: object) -> str:
    """A value for an error: short, in ASCII, and never the whole of something large."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} with {len(value)} entries"
    if isinstance(value, int) and not -(2**70) < value < 2**70:
        return "a number with more than 20 digits"
    return ascii(value[:_SHOWN_MAX] if isinstance(value, str) else value)
