"""Reading and writing objects as YAML and JSON, with limits. Pure.

YAML is read as JSON: dates stay texts, keys are texts, and aliases cannot make a small file huge.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml

from knative_gateway.resources.documents.bounds import Budget
from knative_gateway.resources.documents.large import INLINE_CHARACTERS, PIECE_CHARACTERS, read_large
from knative_gateway.resources.documents.yaml_documents import documents, plain
from knative_gateway.resources.objects import Object, entries, text

_DIGITS_MAX: Final = 20
_SURROGATE: Final = re.compile(r"\\(?:u|U0000)[dD][89a-fA-F]")
"""An escaped surrogate: half of a character. Only both halves together are a character."""
_SURROGATE_CHARACTERS: Final = 8
"""The longest match of the pattern."""


class ManifestError(ValueError):
    """A text is not YAML or JSON, or exceeds a limit. The message names the position if it is known."""


def read_json(written: bytes) -> object:
    """Read one JSON document.

    Raises:
      ManifestError: the text is not JSON, or exceeds a limit.
    """
    hooks: dict[str, Any] = {"parse_constant": _no_constant, "parse_float": _float, "parse_int": _integer}
    try:
        characters = written.decode(json.detect_encoding(written))
        is_small = len(characters) <= INLINE_CHARACTERS
        read = json.loads(characters, **hooks) if is_small else read_large(characters, **hooks)
        Budget().spend(read)
        if _has_surrogate(characters):
            check_text(read)
    except RecursionError:
        message = "it is nested too deep"
        raise ManifestError(message) from None
    except ValueError as error:
        message = f"it is not JSON: {error}"
        raise ManifestError(message[:300]) from None
    return read


def read_yaml(written: bytes) -> list[object]:
    """Read the documents of a YAML text. Empty documents are skipped.

    Raises:
      ManifestError: the text is not YAML, or exceeds a limit.
    """
    try:
        read = [_plain(each) for each in documents(written) if each is not None]
        if _has_surrogate(written.decode("latin-1")):
            check_text(read)
        return read
    except (ValueError, OverflowError) as error:
        raise ManifestError(str(error)[:300]) from None


def objects(read: Sequence[object]) -> list[Object]:
    """Return the objects in the documents. The items of a List are returned one by one.

    Raises:
      ManifestError: a document is not a Kubernetes object.
    """
    found: list[Object] = []
    for document in read:
        if (
            not isinstance(document, Mapping)
            or not text(document, "apiVersion")
            or not text(document, "kind")
        ):
            message = "apiVersion and kind are missing"
            raise ManifestError(message)
        if text(document, "kind").endswith("List") and isinstance(document.get("items"), list):
            found += objects(entries(document, "items"))
        else:
            found.append(document)
    return found


def written_yaml(document: Any) -> str:
    dumped: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=140)
    return dumped


def check_text(value: object) -> None:
    """Check that all texts and names in a document can be encoded in UTF-8.

    Raises:
      ValueError: a text has a surrogate without its other half.
    """
    match value:
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                message = (
                    f"{value[:40].encode('ascii', 'backslashreplace').decode()!r} is not valid Unicode"
                    " (a lone surrogate)"
                )
                raise ValueError(message) from None
        case Mapping():
            for name, below in value.items():
                check_text(name)
                check_text(below)
        case list():
            for below in value:
                check_text(below)
        case _:
            pass


def _has_surrogate(characters: str) -> bool:
    """Return whether a text has an escaped surrogate. It is searched in pieces: see `large`."""
    return any(
        _SURROGATE.search(characters, start, start + PIECE_CHARACTERS + _SURROGATE_CHARACTERS)
        for start in range(0, len(characters), PIECE_CHARACTERS)
    )


_BREAK: Final = re.compile("[\x85\u2028\u2029]")


class _Dumper(yaml.SafeDumper):
    """PyYAML's dumper. It also quotes texts that other YAML readers would read as booleans or numbers."""


def _represent(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    # For PyYAML, "y", 1e3 and 0o17 are texts; for others they are true and numbers.
    ambiguous = value.lower() in {"y", "n"} or not _reads_as_text(value)
    style = "'" if ambiguous else None
    if _BREAK.search(value):
        # PyYAML would fold the text there, because YAML 1.1 has these line breaks and YAML 1.2 does not.
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _reads_as_text(value: str) -> bool:
    """Whether a text without quotes is read as itself."""
    try:
        return plain(value) == value
    except ValueError:
        return False


_Dumper.add_representer(str, _represent)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return _finite(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return _sized(value)
    return value


def _integer(written: str) -> int | float:
    return _sized(int(written)) if len(written) <= _DIGITS_MAX else _float(written)


def _sized(value: int) -> int | float:
    """As in Kubernetes, an integer that does not fit in 64 bits becomes a floating-point number."""
    return value if -(1 << 63) <= value < 1 << 63 else _finite(float(value))


def _float(written: str) -> float:
    return _finite(float(written))


def _finite(value: float) -> float:
    if not math.isfinite(value):
        message = f"{value} is not a JSON number"
        raise ValueError(message)
    return value


def _no_constant(name: str) -> object:
    message = f"{name} is not allowed"
    raise ValueError(message)
