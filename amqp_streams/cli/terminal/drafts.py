"""Turns lines, JSON, CSV rows and files into events. Pure.

A draft is an event and its requested partition. A JSON line has the form of `receive --format json`: `body`
(text as it is, other values as JSON) or `body_base64`, and `key`, `partition`, `subject`, `content_type`,
`message_id`, `correlation_id`, `properties`.
"""

import base64
import binascii
import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol

from amqp_streams.cli.terminal.reading import InputError
from amqp_streams.client import Event

_JSON: Final = "application/json"
_TEXTS: Final = ("key", "subject", "content_type", "message_id", "correlation_id")
# `receive` also prints these: they belong to the stored event and are not sent again.
_IGNORED: Final = frozenset(
    {"offset", "timestamp", "timestamp_ms", "annotations", "delivery_annotations", "log"}
)
_KNOWN: Final = frozenset({"body", "body_base64", "partition", "properties", *_TEXTS})
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_DECIMAL: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,300})(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,2})?")
_Property = str | int | float | bool | None


class Draft(NamedTuple):
    """An event to send, and its requested partition."""

    event: Event
    partition: str | None = None


@dataclass(frozen=True, slots=True)
class Common:
    """The defaults of all events of a `send`."""

    key: str | None = None
    content_type: str | None = None
    subject: str | None = None
    properties: Mapping[str, _Property] = field(default_factory=dict)
    key_regex: re.Pattern[bytes] | None = None

    def event(
        self,
        body: bytes,
        *,
        key: str | None = None,
        content_type: str | None = None,
        more: Mapping[str, _Property] | None = None,
    ) -> Event:
        """An event with this body; `more`: properties in addition to the common ones."""
        return Event(
            body=body,
            key=self.key if key is None else key,
            content_type=self.content_type or content_type,
            subject=self.subject,
            properties={**self.properties, **(more or {})} or None,
        )


class Drafter(Protocol):
    """One line in, one draft out (None: the line is not an event, such as the header of a CSV file)."""

    def __call__(self, line: bytes, number: int) -> Draft | None:
        """The draft of line `number` (from 1).

        Raises:
            InputError: the line is not valid.
        """


@dataclass(frozen=True, slots=True)
class LineDrafter:
    """Each line is an event.

    The first group of a key regex in the line is the key; without a match the event has none.
    """

    common: Common

    def __call__(self, line: bytes, number: int) -> Draft | None:  # noqa: ARG002  # the port's signature
        """See `Drafter`."""
        return Draft(self.common.event(line, key=_found_key(self.common.key_regex, line)))


@dataclass(frozen=True, slots=True)
class JsonDrafter:
    """Each line is a JSON object that describes an event; empty lines are skipped."""

    common: Common

    def __call__(self, line: bytes, number: int) -> Draft | None:
        """See `Drafter`."""
        if not line.strip():
            return None
        try:
            given = json.loads(line)
        except ValueError as error:
            message = f"line {number}: not valid JSON: {_reason(error)}"
            raise InputError(message) from error
        if not isinstance(given, dict):
            message = (
                f'line {number}: must be a JSON object, for example {{"body": "20.5", "key": "kitchen"}}'
            )
            raise InputError(message)
        unknown = sorted(given.keys() - _KNOWN - _IGNORED)
        if unknown:
            message = f"line {number}: unknown entry {unknown[0]!r}; known are {', '.join(sorted(_KNOWN))}"
            raise InputError(message)
        try:
            return self._draft(given)
        except ValueError as error:
            message = f"line {number}: {error}"
            raise InputError(message) from error

    def _draft(self, given: Mapping[str, object]) -> Draft:
        body, is_json = _body(given)
        texts = {name: _text(name, given.get(name)) for name in _TEXTS}
        event = self.common.event(body, key=texts["key"], content_type=_JSON if is_json else None)
        event = replace(
            event,
            content_type=texts["content_type"] or event.content_type,
            subject=texts["subject"] or event.subject,
            message_id=texts["message_id"],
            correlation_id=texts["correlation_id"],
            properties={**self.common.properties, **_properties(given.get("properties"))} or None,
        )
        partition = given.get("partition")
        return Draft(event, None if partition is None else str(partition))


class CsvDrafter:
    """Each row is an event: a JSON object of its columns, or the line as it is.

    The first row names the columns.
    """

    def __init__(
        self,
        common: Common,
        *,
        as_json: bool = True,
        key_column: str | None = None,
        key_template: str | None = None,
        property_columns: Sequence[str] = (),
    ) -> None:
        """`property_columns`: columns to send also as application properties; `*`: all."""
        self._common: Final = common
        self._as_json: Final = as_json
        self._template: Final = f"{{{key_column}}}" if key_column is not None else key_template
        self._key_column: Final = key_column
        self._property_columns = tuple(property_columns)
        self._columns: list[str] = []

    def __call__(self, line: bytes, number: int) -> Draft | None:
        """See `Drafter`."""
        if not line:
            return None
        try:
            # Spreadsheets write a byte order mark before the first column's name.
            cells = next(csv.reader([line.decode("utf-8-sig" if number == 1 else "utf-8")], strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            message = f"row {number} is not valid CSV in UTF-8: {_reason(error)}"
            raise InputError(message) from error
        if not self._columns:
            self._take_header(cells)
            return None
        # Cells would otherwise get the names of other columns.
        if len(cells) != len(self._columns):
            message = f"row {number} has {len(cells)} cells, but the header has {len(self._columns)} columns"
            raise InputError(message)
        row = dict(zip(self._columns, cells, strict=True))
        key = _found_key(self._common.key_regex, line)
        if self._template is not None:
            key = self._key(row, number)
        more = {name: _number_or_text(row[name]) for name in self._property_columns}
        if not self._as_json:
            return Draft(self._common.event(line, key=key, more=more))
        return Draft(
            self._common.event(
                json.dumps(row, ensure_ascii=False).encode(), key=key, content_type=_JSON, more=more
            )
        )

    def _take_header(self, cells: Sequence[str]) -> None:
        if len(set(cells)) != len(cells):
            message = f"row 1 has a duplicate column name: {', '.join(cells)}"
            raise InputError(message)
        if self._key_column is not None and self._key_column not in cells:
            message = (
                f"--key-column: no column named {self._key_column!r}; the columns are {', '.join(cells)}"
            )
            raise InputError(message)
        if "*" in self._property_columns:
            self._property_columns = tuple(cells)
        strange = [name for name in self._property_columns if name not in cells]
        if strange:
            message = f"--property-column: no column named {strange[0]!r}; the columns are {', '.join(cells)}"
            raise InputError(message)
        self._columns = list(cells)

    def _key(self, row: Mapping[str, str], number: int) -> str:
        if self._key_column is not None:
            return row[self._key_column]
        assert self._template is not None
        try:
            return self._template.format_map(row)
        except KeyError as error:
            message = f"--key-template: no column named {error}; the columns are {', '.join(self._columns)}"
            raise InputError(message) from error
        # `format` raises these for a template that is not valid or names an attribute.
        except (ValueError, IndexError, AttributeError) as error:
            message = (
                f"--key-template: row {number}: {error}; write a column as {{date}}, its first ten characters"
                " as {date:.10}"
            )
            raise InputError(message) from error


def parse_property(text: str) -> tuple[str, str]:
    """Read `name=value`.

    Raises:
        ValueError: the text has no `=`, or no name before it.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        message = f"{text!r} is not NAME=VALUE"
        raise ValueError(message)
    return name, value


def _number_or_text(cell: str) -> _Property:
    """A cell as a property: a number if it is one in JSON's notation (`007` stays text)."""
    # A larger number does not fit an AMQP long.
    if _INTEGER.fullmatch(cell) and -(2**63) <= int(cell) < 2**63:
        return int(cell)
    return float(cell) if _DECIMAL.fullmatch(cell) else cell


def _found_key(pattern: re.Pattern[bytes] | None, line: bytes) -> str | None:
    found = pattern.search(line) if pattern else None
    group = found[1] if found else None
    return None if group is None else bytes(group).decode(errors="replace")


def _body(given: Mapping[str, object]) -> tuple[bytes, bool]:
    """The body's bytes, and whether they are JSON that was created here."""
    if "body_base64" in given:
        text = given["body_base64"]
        if "body" in given or not isinstance(text, str):
            message = "'body_base64' must be a text, without 'body'"
            raise ValueError(message)
        try:
            return base64.b64decode(text, validate=True), False
        except binascii.Error as error:
            message = f"'body_base64': {error}"
            raise ValueError(message) from error
    body = given.get("body", "")
    if isinstance(body, str):
        return body.encode(), False
    return json.dumps(body, ensure_ascii=False).encode(), True


def _text(name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        message = f"{name!r} must be a text (got {json.dumps(value)})"
        raise ValueError(message)
    return value


def _properties(value: object) -> dict[str, _Property]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        message = "'properties' must be an object"
        raise ValueError(message)
    for name, one in value.items():
        if not isinstance(one, str | int | float | bool | None):
            message = (
                f"property {name!r} must be a text, a number, true, false or null (got {json.dumps(one)})"
            )
            raise ValueError(message)
    return value


def _reason(error: Exception) -> str:
    return f"byte {error.start + 1} is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
