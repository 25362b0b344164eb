"""YAML as JSON: the parser's events become values, without recursion, and are counted as they arrive. Pure.

- Dates, binaries, sets and objects of a programming language do not exist.
- Keys are the texts that were written. A key occurs at most once in an object.
- Numbers are read as in Kubernetes: 1e3 is a number, 12:30 is not.
- Aliases and merge keys cannot make a small text large: what they stand for counts each time.

PyYAML's own composer and constructor build all nodes before they can be counted; see
docs/decisions/dependencies.md. A test compares this reader with them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from knative_gateway.resources.documents.bounds import DEPTH_MAX, VALUES_MAX, Budget, TooMuchError

_FAST: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C if PyYAML was built with it, as its wheels are.

Only the parser is used: the composer in C recurses until the process crashes.
"""
_INTEGER: Final = re.compile(r"[-+]?(?:0b[01]{1,64}|0x[0-9a-fA-F]{1,16}|0o?[0-7]{1,22}|0|[1-9][0-9]{0,400})")
FLOATING: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,5})?")
_SPECIAL: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_NUMBER_CHARACTERS_MAX: Final = 400
_WORDS: Final[Mapping[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **{written: True for word in ("yes", "true", "on") for written in (word, word.title(), word.upper())},
    **{written: False for word in ("no", "false", "off") for written in (word, word.title(), word.upper())},
}
_TAG: Final = "tag:yaml.org,2002:"


class YamlError(ValueError):
    """A text is not YAML of this kind, or exceeds a limit."""


@dataclass(slots=True)
class _Open:
    """A list or object whose end has not been read.

    `key` is the key of the next value. `merged` holds the values of the merge keys (`<<`).
    """

    value: list[Any] | dict[str, Any]
    key: str | None = None
    is_merge: bool = False
    merged: list[dict[str, Any]] = field(default_factory=list)


def documents(written: bytes) -> Iterator[object]:
    """Yield the value of each document of a text. An alias and its anchor become the same Python object.

    Raises:
      YamlError: the text is not YAML, or exceeds a limit.
    """
    try:
        reader = _Reader()
        for event in yaml.parse(written, _FAST):
            if isinstance(event, yaml.DocumentEndEvent):
                yield reader.end()
                reader.anchors.clear()
            else:
                reader.take(event)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        message = f"it is not YAML: {_words(error)}"
        raise YamlError(message) from None
    except TooMuchError as error:
        raise YamlError(str(error)) from None


class _Reader:
    """The state of the document that is being read."""

    def __init__(self) -> None:
        self.anchors: Final[dict[str, object]] = {}
        self._open: Final[list[_Open]] = []
        self._root: object = None
        self._budget: Final = Budget()
        self._count = 0
        self._merged = 0

    def end(self) -> object:
        """Return the current document, and begin the next one."""
        root, self._root = self._root, None
        self._budget.spend(root)  # a value counts once for each alias
        return root

    def take(self, event: yaml.Event) -> None:
        """Process one event of the parser."""
        match event:
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.CollectionStartEvent():
                self._begin(event)
            case yaml.CollectionEndEvent():
                self._close()

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        top = self._open[-1] if self._open else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            top.key = event.value
            top.is_merge = event.value == "<<" and event.implicit[0]
            # YAML parsers differ about which value counts, so a file could pass one check and mean another
            # thing here.
            if top.key in top.value and not top.is_merge:
                raise _not_yaml(event, f"the key {event.value[:80]!r} occurs twice")
            return
        self._add(event, _value(event))

    def _alias(self, event: yaml.AliasEvent) -> None:
        name = event.anchor or ""
        if name not in self.anchors:
            raise _not_yaml(event, f"found undefined alias {name[:80]!r}")
        self._add(event, self.anchors[name])

    def _begin(self, event: yaml.CollectionStartEvent) -> None:
        kind = "seq" if isinstance(event, yaml.SequenceStartEvent) else "map"
        if event.tag not in {None, "!", _TAG + kind}:
            raise _not_yaml(event, f"could not determine a constructor for the tag {event.tag[:80]!r}")
        value: Any = [] if kind == "seq" else {}
        self._add(event, value)
        self._open.append(_Open(value))
        # Code that reads documents later is recursive.
        if len(self._open) > DEPTH_MAX:
            message = f"it is nested more than {DEPTH_MAX} deep"
            raise YamlError(message)

    def _add(self, event: yaml.NodeEvent, value: object) -> None:
        """Add a value to the open list or object."""
        self._count += 1
        # Counted as values arrive: a small text of aliases would otherwise be expanded before it is refused.
        if self._count > VALUES_MAX:
            message = f"it has more than {VALUES_MAX} values"
            raise YamlError(message)
        if event.anchor is not None and not isinstance(event, yaml.AliasEvent):
            self.anchors[event.anchor] = value
        if not self._open:
            self._root = value
            return
        top = self._open[-1]
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key is None:
            raise _not_yaml(event, "a key must be a text")
        elif top.is_merge:
            top.merged.append({"<<": value})
            top.key = None
        else:
            top.value[top.key] = value
            top.key = None

    def _close(self) -> None:
        done = self._open.pop()
        if done.merged and isinstance(done.value, dict):
            own = dict(done.value)
            found = self._merged_objects(done.merged)
            done.value.clear()
            # the first merged object wins over later ones, and the object's own keys win over all of them
            for each in reversed(found):
                done.value.update(each)
            done.value.update(own)

    def _merged_objects(self, merged: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return copies of the objects that the merge keys name."""
        found: list[dict[str, Any]] = []
        for each in (value for entry in merged for value in _list(entry["<<"])):
            if not isinstance(each, dict):
                message = "it is not YAML: expected a mapping for merging"
                raise YamlError(message)
            # A merge key copies an object. Its size counts at each use, also through several levels.
            self._merged += len(each) + 1
            if self._merged > VALUES_MAX:
                message = f"it has more than {VALUES_MAX} values, merged ones included"
                raise YamlError(message)
            found.append(dict(each))
        return found


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _not_yaml(event: yaml.Event, words: str) -> YamlError:
    return YamlError(
        f"it is not YAML: {words}" + (f", line {event.start_mark.line + 1}" if event.start_mark else "")
    )


def _value(event: yaml.ScalarEvent) -> object:
    """Return a scalar's value, by its tag or by its form."""
    written: str = event.value
    if event.tag in {None, "!"}:
        return plain(written) if event.implicit[0] else written
    if event.tag == f"{_TAG}str":
        return written
    value = plain(written)
    word = {"NoneType": "null", "bool": "bool", "int": "int", "float": "float"}.get(type(value).__name__)
    if word is None or event.tag not in {_TAG + word, f"{_TAG}float" if word == "int" else ""}:
        raise _not_yaml(event, f"could not determine a constructor for the tag {event.tag[:80]!r}")
    return value


def plain(written: str) -> object:
    """Return the value of a text without quotes.

    Raises:
      YamlError: a number that JSON does not have.
    """
    if written in _WORDS:
        return _WORDS[written]
    if len(written) > _NUMBER_CHARACTERS_MAX or written[0] not in "+-.0123456789":
        return written
    if _INTEGER.fullmatch(written):
        digits = written.lstrip("+-")
        octal = digits[0] == "0" and digits[1:].isdigit()
        value = int(digits, 8 if octal else 0)
        return -value if written[0] == "-" else value
    if FLOATING.fullmatch(written):
        return float(written)
    if _SPECIAL.fullmatch(written):
        message = f"{written} is not JSON"
        raise YamlError(message)
    return written


def _words(error: yaml.YAMLError | UnicodeDecodeError) -> str:
    """Return what is wrong and where, without the words of the library about streams."""
    mark = getattr(error, "problem_mark", None)
    if isinstance(error, yaml.reader.ReaderError):
        return f"byte {error.position + 1}: {error.reason}"
    words = getattr(error, "problem", None) or " ".join(str(error).split())
    return words if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: {words}"
