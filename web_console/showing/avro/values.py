"""Bodies in Avro: from bytes to values, by a schema. Pure.

Laws: a body has at most `BODY_BYTES_MAX` bytes, and at most `VALUES_MAX` values of it are made, whatever
counts the body claims: the rest is left out. Values have at most `DEPTH_MAX` levels. A body that does not fit
raises an AvroError that names the field and the byte. Spec: Apache Avro 1.12, "Data Serialization",
"Single-object encoding".
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Context, Decimal
from typing import Final

from amqp_streams.wire.codec import Timestamp
from web_console.showing.avro.schema import Schema, Type

BODY_BYTES_MAX: Final = 512 << 10
VALUES_MAX: Final = 20_000
DEPTH_MAX: Final = 64
FORMS: Final = {
    "": "found by its first bytes",
    "plain": "binary Avro",
    "single": "single-object encoding",
    "registry": "with the id of a schema registry",
}
"""The forms of a body, in words."""
_SINGLE: Final = b"\xc3\x01"
_SINGLE_BYTES: Final = 10
_REGISTRY_BYTES: Final = 5
_LONG_BYTES_MAX: Final = 10
_DECIMAL_BYTES_MAX: Final = 256
_EPOCH: Final = date(1970, 1, 1).toordinal()
_PLACE_MAX: Final = 200
_DECIMALS: Final = Context(prec=1000)


class AvroError(ValueError):
    """A body is not a value of the schema. The message says where and why."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A value of a body. `form`: in words. `is_cut`: only the first `VALUES_MAX` values were made."""

    value: object
    form: str
    is_cut: bool


def decoded(schema: Schema, body: bytes, form: str = "") -> Decoded:
    """Return the value of a body. `form`: one of `FORMS`.

    Raises:
        AvroError: the body is too long, or is not a value of the schema.
    """
    if len(body) > BODY_BYTES_MAX:
        message = (
            f"Bodies of at most {BODY_BYTES_MAX >> 10} KiB are decoded (this one has {len(body):,} bytes)."
        )
        raise AvroError(message)
    if form == "single" or (not form and body.startswith(_SINGLE) and len(body) >= _SINGLE_BYTES):
        return _single(schema, body, is_given=bool(form))
    if form == "registry" or (not form and body[:1] == b"\0" and len(body) >= _REGISTRY_BYTES):
        return _registry(schema, body, is_given=bool(form))
    return _read(schema, body, 0, FORMS["plain"])


def _single(schema: Schema, body: bytes, *, is_given: bool) -> Decoded:
    if not body.startswith(_SINGLE) or len(body) < _SINGLE_BYTES:
        message = (
            "The body does not begin with the marker C3 01 and a fingerprint of the single-object encoding."
        )
        raise AvroError(message)
    found = int.from_bytes(body[2:_SINGLE_BYTES], "little")
    if found == schema.fingerprint:
        return _read(schema, body, _SINGLE_BYTES, f"{FORMS['single']}, fingerprint {found:016x}")
    refused = AvroError(
        f"The body has the fingerprint {found:016x} of another schema: this schema has"
        f" {schema.fingerprint:016x}."
    )
    return _otherwise_plain(schema, body, refused, is_given=is_given)


def _registry(schema: Schema, body: bytes, *, is_given: bool) -> Decoded:
    if body[:1] != b"\0" or len(body) < _REGISTRY_BYTES:
        message = "The body does not begin with the byte 00 and the four bytes of an id of a schema registry."
        raise AvroError(message)
    id_ = int.from_bytes(body[1:_REGISTRY_BYTES], "big")
    try:
        return _read(schema, body, _REGISTRY_BYTES, f"schema {id_} of a schema registry")
    except AvroError as error:
        return _otherwise_plain(schema, body, error, is_given=is_given)


def _otherwise_plain(schema: Schema, body: bytes, error: AvroError, *, is_given: bool) -> Decoded:
    """Read a body without a prefix: its first value may have the bytes of one."""
    if not is_given:
        try:
            return _read(schema, body, 0, FORMS["plain"])
        except AvroError:
            pass
    raise error


def _read(schema: Schema, body: bytes, start: int, form: str) -> Decoded:
    reader = _Reader(body, start)
    value = reader.read(schema.type, 0)
    if not reader.is_cut and reader.at < len(body):
        message = (
            f"The body does not fit the schema: the value ends before byte {reader.at:,}, but the body has"
            f" {len(body):,} bytes."
        )
        raise AvroError(message)
    return Decoded(value, form, reader.is_cut)


class _Reader:
    """Reads one body. `at`: the next byte."""

    def __init__(self, body: bytes, at: int) -> None:
        self.at = at
        self.is_cut = False
        self._body: Final = body
        self._left = VALUES_MAX
        self._place: Final[list[str]] = []
        self._readers: Final[Mapping[str, Callable[[Type, int], object]]] = {
            "null": lambda *_: None,
            "boolean": lambda *_: self._boolean(),
            "int": lambda type_, _: self._integer(type_, 32),
            "long": lambda type_, _: self._integer(type_, 64),
            "float": lambda *_: struct.unpack("<f", self._take(4))[0],
            "double": lambda *_: struct.unpack("<d", self._take(8))[0],
            "bytes": lambda type_, _: _binary(type_, self._sized()),
            "string": lambda *_: self._string(),
            "fixed": lambda type_, _: _binary(type_, self._take(type_.size)),
            "enum": lambda type_, _: type_.symbols[self._index(len(type_.symbols), "symbol")],
            "union": self._union,
            "record": self._record,
            "array": self._array,
            "map": self._map,
        }

    def read(self, type_: Type, depth: int) -> object:
        """Return the next value."""
        if depth > DEPTH_MAX:
            raise self._wrong(f"the value has more than {DEPTH_MAX} levels")
        self._left -= 1
        return self._readers[type_.kind](type_, depth)

    def _has_room(self) -> bool:
        self.is_cut = self.is_cut or self._left <= 0
        return not self.is_cut

    def _union(self, type_: Type, depth: int) -> object:
        return self.read(type_.branches[self._index(len(type_.branches), "branch of the union")], depth + 1)

    def _record(self, type_: Type, depth: int) -> object:
        found: dict[str, object] = {}
        for name, each in type_.fields:
            if not self._has_room():
                break
            self._place.append(f".{name}")
            found[name] = self.read(each, depth + 1)
            self._place.pop()
        return found

    def _array(self, type_: Type, depth: int) -> object:
        assert type_.items is not None
        found: list[object] = []
        while self._has_room() and (count := self._count()):
            for _ in range(count):
                if not self._has_room():
                    break
                self._place.append(f"[{len(found)}]")
                found.append(self.read(type_.items, depth + 1))
                self._place.pop()
        return found

    def _map(self, type_: Type, depth: int) -> object:
        assert type_.items is not None
        found: dict[str, object] = {}
        while self._has_room() and (count := self._count()):
            for _ in range(count):
                if not self._has_room():
                    break
                key = self._string()
                self._place.append(f"[{key[:40]!r}]")
                found[key] = self.read(type_.items, depth + 1)
                self._place.pop()
        return found

    def _count(self) -> int:
        """Return how many items the next block has. Each block costs a value, so that none is free."""
        self._left -= 1
        count = self._long(64)
        if count >= 0:
            return count
        if self._long(64) < 0:
            raise self._wrong("the size of a block is negative")
        return -count

    def _index(self, count: int, what: str) -> int:
        index = self._long(32)
        if not 0 <= index < count:
            raise self._wrong(f"the {what} {index} does not exist ({count} in the schema)")
        return index

    def _boolean(self) -> bool:
        found = self._take(1)[0]
        if found > 1:
            raise self._wrong(f"a boolean is 00 or 01, not {found:02x}")
        return found == 1

    def _integer(self, type_: Type, bits: int) -> object:
        found = self._long(bits)
        match type_.logical:
            case "timestamp-millis":
                return Timestamp(found)
            case "timestamp-micros":
                return Timestamp(found // 1000)
            case "date" if 0 < _EPOCH + found <= date.max.toordinal():
                return date.fromordinal(_EPOCH + found).isoformat()
        return found

    def _long(self, bits: int) -> int:
        found = 0
        for index in range(_LONG_BYTES_MAX):
            each = self._take(1)[0]
            found |= (each & 0x7F) << (7 * index)
            if each < 0x80:
                break
        else:
            raise self._wrong("an integer has more than 10 bytes")
        if found >> bits:
            raise self._wrong(f"an integer has more than {bits} bits")
        return (found >> 1) ^ -(found & 1)

    def _sized(self) -> bytes:
        size = self._long(64)
        if size < 0:
            raise self._wrong(f"the length {size:,} is negative")
        return self._take(size)

    def _string(self) -> str:
        found = self._sized()
        try:
            return found.decode()
        except UnicodeDecodeError as error:
            raise self._wrong("a text is not UTF-8") from error

    def _take(self, size: int) -> bytes:
        left = len(self._body) - self.at
        if size > left:
            raise self._wrong(f"{size:,} bytes are needed, and {left:,} are left")
        self.at += size
        return self._body[self.at - size : self.at]

    def _wrong(self, why: str) -> AvroError:
        place = "".join(self._place).removeprefix(".")
        # The end of a long place says more than its beginning.
        place = place if len(place) <= _PLACE_MAX else f"…{place[-_PLACE_MAX:]}"
        where = f"in {place}, at byte {self.at:,}" if place else f"at byte {self.at:,}"
        return AvroError(f"The body does not fit the schema: {why} ({where}).")


def _binary(type_: Type, found: bytes) -> object:
    if type_.logical == "decimal" and 0 < len(found) <= _DECIMAL_BYTES_MAX:
        number = Decimal(int.from_bytes(found, "big", signed=True)).scaleb(-type_.scale, _DECIMALS)
        return f"{number:f}"
    return found
