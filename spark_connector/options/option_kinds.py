"""The kinds of option values. Each kind converts text to a value. Pure.

`read` of a kind returns a value or raises ValueError. The message states what is expected. It does not
contain the given text, which may be a secret.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

_SIZES: Final = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "kb": 1 << 10,
    "kib": 1 << 10,
    "m": 1 << 20,
    "mb": 1 << 20,
    "mib": 1 << 20,
}
_SIZES_LARGE: Final = {
    "g": 1 << 30,
    "gb": 1 << 30,
    "gib": 1 << 30,
    "t": 1 << 40,
    "tb": 1 << 40,
    "tib": 1 << 40,
}
_TIMES: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_QUANTITY: Final = re.compile(r"([0-9]+)\s*([A-Za-z]*)")
_PORTS: Final = {"amqp": 5672, "amqps": 5671, "ws": 80, "wss": 443}


@dataclass(frozen=True, slots=True)
class Kind:
    """`words` describes the values of the kind, for errors and for the table in the documentation."""

    words: str
    read: Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The URL of a node without user and password: `amqp://host:port`."""

    url: str


def plain(words: str) -> Kind:
    """Any text that is not empty, unchanged."""

    def read(text: str) -> str:
        if not text:
            raise ValueError(words)
        return text

    return Kind(words, read)


def choice(*values: str) -> Kind:
    """One of the words `values`, in any case."""
    words = ", ".join(f"`{value}`" for value in values[:-1]) + f" or `{values[-1]}`"
    known = {value.lower(): value for value in values}

    def read(text: str) -> str:
        found = known.get(text.strip().lower())
        if found is None:
            raise ValueError(words)
        return found

    return Kind(words, read)


def _flag(text: str) -> bool:
    value = text.strip().lower()
    if value not in {"true", "false"}:
        raise ValueError(FLAG.words)
    return value == "true"


FLAG: Final = Kind("`true` or `false`", _flag)


def number(low: int, high: int | None = None) -> Kind:
    """A whole number, bounds inclusive."""
    words = f"a whole number, {low:,} to {high:,}" if high is not None else f"a whole number, {low:,} or more"

    def read(text: str) -> int:
        try:
            value = int(text.strip())
        except ValueError:
            raise ValueError(words) from None
        if value < low or (high is not None and value > high):
            raise ValueError(words)
        return value

    return Kind(words, read)


def size(low: int, high: int | None = None) -> Kind:
    """A number of bytes, with or without a unit: `64m`."""
    top = "" if high is None else f", at most {high:,} bytes"
    return _quantity(
        f"bytes, or a number with `k`, `m`, `g`{top}; at least {low:,}", _SIZES | _SIZES_LARGE, low, high
    )


def duration(low_ms: int, high_ms: int | None = None) -> Kind:
    """A number of milliseconds, or a number with a unit: `15m`."""
    top = "" if high_ms is None else f", at most {high_ms:,} ms"
    return _quantity(
        f"milliseconds, or a number with `ms`, `s`, `m`, `h`, `d`{top}; at least {low_ms:,}",
        _TIMES,
        low_ms,
        high_ms,
    )


def _quantity(words: str, units: dict[str, int], low: int, high: int | None) -> Kind:
    def read(text: str) -> int:
        found = _QUANTITY.fullmatch(text.strip())
        factor = units.get(found[2].lower()) if found else None
        if found is None or factor is None:
            raise ValueError(words)
        value = int(found[1]) * factor
        if value < low or (high is not None and value > high):
            raise ValueError(words)
        return value

    return Kind(words, read)


def names(words: str) -> Kind:
    """A list separated by commas. Blanks around names are ignored; empty and repeated names are errors."""

    def read(text: str) -> tuple[str, ...]:
        found = tuple(part.strip() for part in text.split(","))
        if not all(found) or len(set(found)) != len(found):
            raise ValueError(f"{words}, without empty or repeated names")
        return found

    return Kind(words, read)


def endpoints() -> Kind:
    """URLs separated by commas. A missing port becomes the default port of the scheme; a missing scheme is
    that of the URL before it.

    A URL must not contain user and password: Spark redacts options by their name, and cannot redact a part of
    a URL.
    """
    words = "`amqp://host:port`, `amqps://`, `ws://` or `wss://`; several are separated by commas"

    def read(text: str) -> tuple[Endpoint, ...]:
        found: tuple[Endpoint, ...] = ()
        for part in text.split(","):
            scheme = found[-1].url.partition("://")[0] if found else "amqp"
            found += (_endpoint(part.strip(), scheme, words),)
        if len(set(found)) != len(found):
            raise ValueError(f"{words}, without repetitions")
        return found

    return Kind(words, read)


def _endpoint(text: str, scheme: str, words: str) -> Endpoint:
    try:
        parts = urlsplit(text if "://" in text else f"{scheme}://{text}")
        port = parts.port
    except ValueError:
        raise ValueError(words) from None
    if parts.scheme not in _PORTS or not parts.hostname or unquote(parts.hostname) != parts.hostname:
        raise ValueError(words)
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            f"{words}, without user and password: use the options `user` and `password`, which Spark does not"
            " print"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = parts.path if parts.scheme in {"ws", "wss"} else ""
    query = f"?{parts.query}" if path and parts.query else ""
    return Endpoint(f"{parts.scheme}://{host}:{port or _PORTS[parts.scheme]}{path}{query}")
