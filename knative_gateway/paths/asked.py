"""What requests for events and for the path of an event ask for: options of the API, checked. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from event_formats.errors import EventFormatError
from event_formats.event import CloudEvent
from event_formats.json_format import read_event
from knative_gateway.offsets import DIGITS
from knative_gateway.resources.objects import moment_ms
from knative_gateway.resources.refusals import StatusError, bad_request, check_options

EVENTS_DEFAULT: Final = 20
EVENTS_MAX: Final = 100
"""Events in an answer."""
LOOKED_AT_DEFAULT: Final = 10_000
LOOKED_AT_MAX: Final = 50_000
"""Events that one search looks at."""
SUBSCRIBERS_DEFAULT: Final = 50
SUBSCRIBERS_MAX: Final = 100
"""Subscribers in an answer."""
SKIP_MAX: Final = 1_000_000
TEXT_MAX: Final = 4096
"""Characters of an id or a source that is searched."""
GIVEN_BYTES_MAX: Final = 256 << 10
"""Bytes of an event that is given, as JSON."""
PARTITION_MAX: Final = 1 << 20
_OFFSET_MAX: Final = 10**DIGITS - 1
_EVENTS: Final = frozenset({"events", "partition", "before", "time", "id", "source", "look_at"})
_TRACE: Final = frozenset({"partition", "offset", "event", "limit", "skip"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events are listed, the newest first.

    `partition`: only those of this one; None: of all. `before`: only events before these offsets, by
    partition; other partitions have no further events. None: all. `at_ms`: only events that were stored up to
    this time. `id`, `source`: only events with these; empty: with any. `look_at`: events that a search looks
    at.
    """

    events: int
    partition: int | None
    before: Mapping[int, int] | None
    at_ms: int | None
    id: str
    source: str
    look_at: int

    @property
    def is_search(self) -> bool:
        """Whether events are looked for, and not only listed."""
        return bool(self.id or self.source)


@dataclass(frozen=True, slots=True)
class Traced:
    """Which event is traced, and which of the subscribers are in the answer.

    `event`: the event at `partition` and `offset`, or one that was given.
    """

    partition: int
    offset: int
    event: CloudEvent | None
    limit: int
    skip: int


def wanted_of(options: Mapping[str, object]) -> Wanted:
    """Return the checked request for events.

    Raises:
        StatusError: an option is not valid.
    """
    check_options("events", options, _EVENTS)
    time = options.get("time")
    at_ms = moment_ms(time) if isinstance(time, str) else None
    if time is not None and at_ms is None:
        message = "time must be a time of RFC 3339 with a time zone, such as 2026-01-31T12:00:00Z"
        raise bad_request(message)
    return Wanted(
        _number(options, "events", EVENTS_DEFAULT, 1, EVENTS_MAX),
        _number(options, "partition", 0, 0, PARTITION_MAX) if "partition" in options else None,
        _marks(options.get("before")),
        at_ms,
        _text(options, "id"),
        _text(options, "source"),
        _number(options, "look_at", LOOKED_AT_DEFAULT, 1, LOOKED_AT_MAX),
    )


def traced_of(options: Mapping[str, object]) -> Traced:
    """Return the checked request for the path of an event.

    Raises:
        StatusError: an option is not valid.
    """
    check_options("trace", options, _TRACE)
    given = options.get("event")
    if given is None and not {"partition", "offset"} <= options.keys():
        message = (
            'trace needs the position of an event, such as {"partition": 0, "offset": 42}, or an "event"'
        )
        raise bad_request(message)
    return Traced(
        _number(options, "partition", 0, 0, PARTITION_MAX),
        _number(options, "offset", 0, 0, _OFFSET_MAX),
        None if given is None else _event(given),
        _number(options, "limit", SUBSCRIBERS_DEFAULT, 1, SUBSCRIBERS_MAX),
        _number(options, "skip", 0, 0, SKIP_MAX),
    )


def _number(options: Mapping[str, object], name: str, default: int, least: int, most: int) -> int:
    value: Any = options.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        message = f"{name} must be a whole number from {least} to {most}"
        raise bad_request(message)
    return value


def _text(options: Mapping[str, object], name: str) -> str:
    value = options.get(name, "")
    if not isinstance(value, str) or len(value) > TEXT_MAX:
        message = f"{name} must be a text of at most {TEXT_MAX} characters"
        raise bad_request(message)
    return value


def _marks(value: object) -> Mapping[int, int] | None:
    if value is None:
        return None
    found: dict[int, int] = {}
    is_map = isinstance(value, Mapping)
    for partition, offset in value.items() if isinstance(value, Mapping) else ():
        name = str(partition)
        is_number = name.isascii() and name.isdigit() and len(name) <= 7
        is_map &= is_number and type(offset) is int and 0 <= offset <= _OFFSET_MAX
        if is_map:
            found[int(name)] = offset
    if not is_map:
        message = 'before must be offsets by partition, such as {"0": 42}'
        raise bad_request(message)
    return found


def _event(given: object) -> CloudEvent:
    """Return an event that was given in the JSON format of CloudEvents."""
    try:
        text = json.dumps(given, ensure_ascii=False).encode()
    except (UnicodeEncodeError, ValueError, RecursionError):
        message = "event has text that is not Unicode, or too many levels"
        raise bad_request(message) from None
    if len(text) > GIVEN_BYTES_MAX:
        message = f"event: an event of at most {GIVEN_BYTES_MAX} bytes can be tried"
        raise bad_request(message)
    try:
        return read_event(text)
    except EventFormatError as error:
        message = f"event is not a CloudEvent in the JSON format: {error}"
        raise StatusError(422, "Invalid", message) from error
