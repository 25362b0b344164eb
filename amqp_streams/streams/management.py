"""Requests to `$management` and their answers. Spec: AMQP Management 1.0 (working draft).

A request is a message with the application properties `operation`, `type` (default "event-log") and `name`,
further values in an amqp-value map, and `reply-to`. The answer has the status code under both spellings that
clients use.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pydantic import ValidationError

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import WireError
from amqp_streams.log_settings import LOG_SETTINGS, log_name
from amqp_streams.streams.access import EVERYTHING, Permissions
from amqp_streams.wire.codec import decode, encode, few_values
from amqp_streams.wire.sections import sections
from amqp_streams.wire.types import Array, Described, Int, ULong, Value
from service_parts.settings.reasons import reason

OK: Final = 200
CREATED: Final = 201
NO_CONTENT: Final = 204
BAD_REQUEST: Final = 400
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
CONFLICT: Final = 409
SERVER_ERROR: Final = 500
NOT_IMPLEMENTED: Final = 501
UNAVAILABLE: Final = 503
"""Another node that must decide is not reached: nothing was changed."""
IN_DOUBT: Final = 504
"""Another node that must decide did not answer: the change may have been made."""

SECTIONS_MAX: Final = 16
"""The most sections of a request: one of each kind, and some more data sections."""
VALUES_MAX: Final = 2500
"""The most values of a request's section: two lists of names and some more. Decoding them takes 3 ms."""

_PROPERTIES: Final = 0x73
_APPLICATION_PROPERTIES: Final = 0x74
_VALUE: Final = 0x77
_MESSAGE_ID, _REPLY_TO, _CORRELATION_ID = 0, 4, 5
_SETTINGS: Final = {setting.name: setting.field for setting in LOG_SETTINGS}
_NAMES: Final = {field: name for name, field in _SETTINGS.items()}


@dataclass(frozen=True, slots=True)
class Request:
    """One parsed request.

    `correlation`: the correlation-id, or else the message-id, which the answer repeats.

    `permissions`: the user's; the node sets them. `log`: the log of a cursor or group, from the application
    properties or the body. `well_formed`: the body is a map or absent. `offset`, `count`: the wanted items of
    a QUERY. `connection`: the shell sets it if the request can wait for the store.
    """

    operation: str
    type: str
    name: str
    body: Mapping[Value, Value]
    reply_to: str | None
    correlation: Value
    permissions: Permissions = EVERYTHING
    log: str = ""
    well_formed: bool = True
    offset: int = 0
    count: int | None = None
    connection: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body of an answer. `audit`: what the log line of the change has besides the request."""

    status: int
    description: str
    body: Value = None
    audit: Mapping[str, str] = field(default_factory=dict)


class RequestError(Exception):
    """The request cannot be carried out; `answer` has the reason."""

    def __init__(self, status: int, description: str) -> None:
        self.answer: Final = Answer(status, description)
        super().__init__(description)


def parse_request(message: bytes) -> Request:
    """Parse a request message.

    Raises:
        WireError: its sections are not valid AMQP or exceed a bound; an answer cannot be addressed.
    """
    found: dict[int, Value] = {}
    for code, start, _ in sections(message, SECTIONS_MAX):
        if code in (_PROPERTIES, _APPLICATION_PROPERTIES, _VALUE):
            # Before decoding, which blocks the event loop for as long as it takes.
            if not few_values(message, start, VALUES_MAX):
                too_many = f"more than {VALUES_MAX} values in a section of a request"
                raise WireError(too_many)
            section, _end = decode(message, start)
            found[code] = section.value if isinstance(section, Described) else section
    properties = found.get(_PROPERTIES)
    fields = properties if isinstance(properties, list) else []
    application = found.get(_APPLICATION_PROPERTIES)
    named = application if isinstance(application, dict) else {}
    value = found.get(_VALUE)
    body = value if isinstance(value, dict) else {}
    correlation = _field(fields, _CORRELATION_ID)
    reply_to = _field(fields, _REPLY_TO)
    return Request(
        operation=_text(named, names.OPERATION).upper(),
        type=_text(named, names.TYPE),
        name=_text(named, names.NAME),
        body=body,
        reply_to=reply_to if isinstance(reply_to, str) else None,
        # AMQP Management: the answer repeats the correlation-id, or else the message-id.
        correlation=_field(fields, _MESSAGE_ID) if correlation is None else correlation,
        log=_text(named, names.INFO_LOG) or _text(body, names.INFO_LOG),
        well_formed=value is None or isinstance(value, dict),
        offset=_natural(named, names.QUERY_OFFSET) or 0,
        count=_natural(named, names.QUERY_COUNT) or None,
    )


def answer_message(request: Request, answer: Answer) -> bytes:
    """The answer as a message."""
    # Clients look for different spellings: both are set.
    codes: dict[Value, Value] = {name: Int(answer.status) for name in names.STATUS_CODES}
    words: dict[Value, Value] = dict.fromkeys(names.STATUS_DESCRIPTIONS, answer.description)
    properties: list[Value] = [None] * (_CORRELATION_ID + 1)
    properties[_CORRELATION_ID] = request.correlation
    return b"".join(
        (
            encode(Described(ULong(_PROPERTIES), properties)),
            encode(Described(ULong(_APPLICATION_PROPERTIES), codes | words)),
            encode(Described(ULong(_VALUE), answer.body)),
        )
    )


def requested_name(request: Request) -> str:
    """The name of the log in a request.

    Raises:
        RequestError: the name is missing or not valid.
    """
    try:
        return log_name(request.name)
    except ValueError as error:
        raise RequestError(BAD_REQUEST, f"application property 'name': {error}") from error


@dataclass(frozen=True, slots=True)
class Extents:
    """A request for the extents of logs. `partitions`: None: all. `after_ms`: a time to find in them.

    `missing_ok`: omit logs that do not exist.
    """

    logs: tuple[str, ...]
    partitions: tuple[str, ...] | None
    after_ms: int | None
    missing_ok: bool = False


def requested_extents(request: Request) -> Extents:
    """The logs in a request: its name, or the list in its body.

    A timestamp means the first event at or after it.

    Raises:
        RequestError: a name is missing or not valid, or a value has a wrong type.
    """
    listed = _texts(request.body, names.EXTENT_LOGS)
    partitions = _texts(request.body, names.INFO_PARTITIONS)
    at_ms = request.body.get(names.RESET_TIMESTAMP)
    if at_ms is not None and (not isinstance(at_ms, int) or isinstance(at_ms, bool)):
        raise RequestError(
            BAD_REQUEST, f"{names.RESET_TIMESTAMP!r} must be a timestamp, in milliseconds since 1970 UTC"
        )
    try:
        logs = tuple(map(log_name, listed)) if listed is not None else (requested_name(request),)
    except ValueError as error:
        raise RequestError(BAD_REQUEST, f"{names.EXTENT_LOGS!r}: {error}") from error
    missing_ok = request.body.get(names.EXTENT_MISSING_OK) is True
    # The search is for events after a time, and the request means events at or after it.
    return Extents(logs, partitions, None if at_ms is None else int(at_ms) - 1, missing_ok)


def requested_settings(request: Request, base: LogSettings) -> LogSettings:
    """`base` with the settings in the request's body.

    Raises:
        RequestError: a setting is unknown or out of bounds.
    """
    given = {str(key): value for key, value in request.body.items()}
    unknown = sorted(given.keys() - _SETTINGS)
    if unknown:
        raise RequestError(
            BAD_REQUEST, f"unknown setting {unknown[0][:64]!r}: known are {', '.join(sorted(_SETTINGS))}"
        )
    fields = {_SETTINGS[key]: _plain(value) for key, value in given.items()}
    try:
        # Validated as a whole: a change must also fit the settings that stay.
        return LogSettings.model_validate(base.model_dump() | fields)
    except ValidationError as error:
        first = error.errors()[0]
        setting = _NAMES.get(str(first["loc"][0]), first["loc"][0])
        raise RequestError(BAD_REQUEST, f"setting {setting!r} {reason(first)}") from error


def described_settings(settings: LogSettings) -> dict[Value, Value]:
    """Settings in the form of an answer."""
    return {_NAMES[key]: value for key, value in settings.model_dump(mode="json").items()}


def differences(old: LogSettings, new: LogSettings) -> dict[str, str]:
    """The settings that differ, with both values, by their names in requests."""
    before, after = old.model_dump(mode="json"), new.model_dump(mode="json")
    return {_NAMES[key]: f"{before[key]} → {after[key]}" for key in after if before[key] != after[key]}


def _plain(value: Value) -> Value:
    if isinstance(value, bool):  # in Python True equals 1, but `true` is not a valid number of a setting
        return str(value)
    if isinstance(value, int):
        return int(value)
    return str(value) if isinstance(value, str) else value


def _texts(body: Mapping[Value, Value], key: str) -> tuple[str, ...] | None:
    """A list or array of names without duplicates; None if the request does not have it."""
    value = body.get(key)
    if value is None:
        return None
    items = value.items if isinstance(value, Array) else value
    if (
        not isinstance(items, list | tuple)
        or not all(isinstance(item, str) for item in items)
        or len(items) > names.EXTENT_NAMES_MAX
    ):
        raise RequestError(BAD_REQUEST, f"{key!r} must be a list of at most {names.EXTENT_NAMES_MAX} names")
    # A repeated name would only repeat its part of the answer.
    return tuple(dict.fromkeys(map(str, items)))


def _field(fields: list[Value], index: int) -> Value:
    return fields[index] if index < len(fields) else None


def _natural(named: Mapping[Value, Value], key: str) -> int | None:
    value = named.get(key)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(named: Mapping[Value, Value], key: str) -> str:
    value = named.get(key)
    return "" if value is None else str(value)


__all__ = [
    "Answer",
    "Request",
    "RequestError",
    "WireError",
    "answer_message",
    "described_settings",
    "parse_request",
    "requested_name",
    "requested_settings",
]
