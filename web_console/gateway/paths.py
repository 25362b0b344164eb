"""Events of a Broker or Channel, and the path of one of them, as the pages show them. Pure.

Laws: texts are cut and lists are bounded, whatever the form and the answer have.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from web_console.gateway import values
from web_console.gateway.rows import TITLES
from web_console.showing.numbers import bounded, time
from web_console.showing.snippets import Curl, as_curl
from web_console.showing.times import time_ms

EVENTS_DEFAULT: Final = 20
EVENTS_MAX: Final = 100
EVENTS_SHOWN_MAX: Final = 400
"""Rows of a page: a search may have more than it asks for."""
SUBSCRIBERS: Final = 50
"""Triggers or Subscriptions on a page."""
SKIP_MAX: Final = 1_000_000
ATTEMPTS_MAX: Final = 20
ATTRIBUTES_MAX: Final = 60
MARKS_MAX: Final = 1024
"""Partitions in the mark of a page."""
GIVEN_MAX: Final = 64 << 10
"""Characters of an event that is pasted."""
_DATA_MAX: Final = 16 << 10
_WHOLE_MAX: Final = 1023
"""Characters of an attribute that the gateway has not cut."""
_ALL_MAX: Final = 49
"""Attributes of an event of which the gateway has left out none."""
_BODY_MAX: Final = 2048
_ORIGINS_MAX: Final = 5
_COMPLETED: Final = "completed"
_MARK: Final = re.compile(r"([0-9]{1,7}):([0-9]{1,16})")
_PARTITION: Final = re.compile(r"[0-9]{1,7}")


@dataclass(frozen=True, slots=True)
class EventRow:
    """A stored event. `position`: `PARTITION:OFFSET`."""

    position: str
    at_ms: int | None
    type: str
    source: str
    id: str
    size: int | None
    problem: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of events. `more`: the mark of the next page; empty if it is the last one."""

    rows: Sequence[EventRow]
    looked_at: int | None
    more: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a dead letter or a reply is. `kind`, `name`: of a Broker or Channel; empty if it is elsewhere.
    `position` is empty if it was not found; then `note` says why.
    """

    what: str
    kind: str
    namespace: str
    name: str
    position: str
    note: str

    @property
    def title(self) -> str:
        """Its Broker or Channel, in the spelling of the API."""
        return f"{TITLES[self.kind]} {self.name}" if self.kind else ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A failed attempt."""

    at_ms: int | None
    number: int | None
    code: int | None
    reason: str
    body: str
    end: str


@dataclass(frozen=True, slots=True)
class Step:
    """A Trigger or Subscription with what it does with the event. `matches` None: not evaluated.

    `words`: more about the state. `kind`: in lower case; empty if it has no page.
    """

    kind: str
    namespace: str
    name: str
    matches: bool | None
    reason: str
    state: str
    words: str
    attempts: Sequence[Attempt]
    places: Sequence[Place]


@dataclass(frozen=True, slots=True)
class Path:
    """The path of one event. `row` and `data` are empty for an event that was pasted."""

    row: EventRow | None
    attributes: Sequence[tuple[str, str]]
    data: str
    is_cut: bool
    steps: Sequence[Step]
    total: int
    matching: int | None
    origins: Sequence[Place]


def listing_of(query: Mapping[str, str], now_ms: int) -> dict[str, object]:
    """Return the options of a request for events.

    Raises:
        ValueError: a field of the form is not valid.
    """
    options: dict[str, object] = {"events": bounded(query.get("events"), EVENTS_DEFAULT, EVENTS_MAX)}
    options |= {name: text for name in ("id", "source") if (text := query.get(name, "").strip()[:4096])}
    partition = query.get("partition", "").strip()
    if partition:
        if not _PARTITION.fullmatch(partition):
            message = f"{partition[:40]!r} is not the number of a partition."
            raise ValueError(message)
        options["partition"] = int(partition)
    until = query.get("time", "").strip()
    if until:
        options["time"] = _moment(time_ms(until, now_ms), until)
    before = query.get("before", "")
    if before:
        options["before"] = dict(_marks(before))
    return options


def position_of(text: str) -> tuple[int, int] | None:
    """Return the partition and the offset in `PARTITION:OFFSET`; None if the text has another form."""
    found = _MARK.fullmatch(text.strip())
    return None if found is None else (int(found[1]), int(found[2]))


def given_of(form: Mapping[str, str]) -> dict[str, object]:
    """Return the options of a request for the path of an event that was pasted.

    Raises:
        ValueError: the form does not have an event.
    """
    text = form.get("event", "").strip()
    if len(text) > GIVEN_MAX:
        message = f"An event has at most {GIVEN_MAX:,} characters here."
        raise ValueError(message)
    try:
        event = json.loads(text)
    except json.JSONDecodeError as error:
        message = f"This is not valid JSON: {error.msg}, at line {error.lineno}, column {error.colno}."
        raise ValueError(message) from error
    except (RecursionError, ValueError) as error:
        message = "This JSON has too many levels, or a number that is too long."
        raise ValueError(message) from error
    if not isinstance(event, dict):
        message = 'Paste one event, such as {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}.'
        raise ValueError(message)
    return {"event": event, "limit": SUBSCRIBERS, "skip": skip_of(form)}


def skip_of(query: Mapping[str, str]) -> int:
    """Return how many subscribers are on the pages before."""
    given = query.get("skip", "")
    return min(int(given), SKIP_MAX) if given.isascii() and given.isdigit() and len(given) < 10 else 0


def listed_of(answer: Mapping[str, Any]) -> Listed:
    """Return a page of events."""
    more = list(values.mapping(answer.get("before")).items())[:MARKS_MAX]
    rows = [_event(each) for each in values.mappings(answer.get("events"), EVENTS_SHOWN_MAX)]
    mark = ",".join(f"{values.text(partition)}:{values.text(offset)}" for partition, offset in more)
    return Listed(rows, values.number(answer.get("looked_at")), mark)


def path_of(answer: Mapping[str, Any]) -> Path:
    """Return the path of an event."""
    event = values.mapping(answer.get("event"))
    attributes = [
        (values.text(name), values.text(value, 1024))
        for name, value in values.mapping(event.get("attributes")).items()
    ]
    data = event.get("data", event.get("data_hex"))
    return Path(
        _event(event) if "partition" in event else None,
        attributes[:ATTRIBUTES_MAX],
        values.text(data, _DATA_MAX),
        event.get("is_cut") is True,
        [_step(each) for each in values.mappings(answer.get("subscribers"), SUBSCRIBERS)],
        values.number(answer.get("total")) or 0,
        values.number(answer.get("matching")),
        [_place("", each) for each in values.mappings(answer.get("origins"), _ORIGINS_MAX)],
    )


def curl_of(answer: Mapping[str, Any], source: Mapping[str, Any], *, with_token: bool) -> Curl:
    """Return the command that sends the event of an answer again. `source`: the Broker or Channel."""
    event = values.mapping(answer.get("event"))
    attributes = [(str(name), str(value)) for name, value in values.mapping(event.get("attributes")).items()]
    if not attributes:
        return Curl(problem="A command for curl is not available: this is not a CloudEvent.")
    if len(attributes) > _ALL_MAX or any(len(value) > _WHOLE_MAX for _, value in attributes):
        return Curl(
            problem="A command for curl is not available: the gateway does not show all of the attributes."
        )
    url = values.mapping(values.mapping(source.get("status")).get("address")).get("url")
    data = event.get("data", None if "data_hex" in event else "")
    is_whole = isinstance(data, str) and event.get("is_cut") is not True
    return as_curl(str(url or ""), attributes, data if is_whole else None, with_token=with_token)


def _step(each: Mapping[str, Any]) -> Step:
    matches = each.get("matches")
    letter, reply = values.mapping(each.get("dead_letter")), values.mapping(each.get("reply"))
    places = (
        [_place(f"Dead letter, sent to {values.text(letter.get('sink')) or '-'}", letter)] if letter else []
    )
    if reply:
        named = " ".join(values.text(reply.get(name)) for name in ("source", "id"))
        places.append(_place(f"Reply {named}", reply))
    return Step(
        _kind(each.get("kind")),
        values.text(each.get("namespace")),
        values.text(each.get("name")),
        matches if isinstance(matches, bool) else None,
        values.text(each.get("reason")),
        values.text(each.get("state")),
        _words(each),
        [
            Attempt(
                values.number(one.get("at_ms")),
                values.number(one.get("attempt")),
                values.number(one.get("code")),
                values.text(one.get("reason")),
                values.text(one.get("body"), _BODY_MAX),
                values.text(one.get("end")),
            )
            for one in values.mappings(each.get("attempts"), ATTEMPTS_MAX)
        ],
        places,
    )


def _words(each: Mapping[str, Any]) -> str:
    words = []
    ahead, delivered = values.number(each.get("ahead")), values.mapping(each.get("delivered"))
    if ahead is not None:
        words.append(f"{ahead:,} {'event is' if ahead == 1 else 'events are'} before it")
    if each.get("state") == _COMPLETED:
        words.append("no record is kept: it was delivered, or the filters did not match it then")
    if each.get("paused") is True:
        words.append("paused")
    took = values.number(delivered.get("took_ms"))
    if took is not None:
        words.append(f"answered after {took:,} ms")
    at_ms = values.number(delivered.get("at_ms"))
    if at_ms is not None:
        words.append(f"last delivered {time(at_ms)}")
    if each.get("here") is False and each.get("state"):
        words.append("another process of the gateway delivers this partition")
    return "; ".join(words)


def _place(what: str, found: Mapping[str, Any]) -> Place:
    position = "" if values.number(found.get("offset")) is None else _position(found)
    namespace, name = (values.text(found.get(each)) for each in ("namespace", "name"))
    return Place(what, _kind(found.get("kind")), namespace, name, position, values.text(found.get("note")))


def _event(each: Mapping[str, Any]) -> EventRow:
    names = values.mapping(each.get("attributes"))
    return EventRow(
        _position(each),
        values.number(each.get("at_ms")),
        values.text(names.get("type")),
        values.text(names.get("source")),
        values.text(names.get("id")),
        values.number(each.get("bytes")),
        values.text(each.get("problem")),
    )


def _position(each: Mapping[str, Any]) -> str:
    return f"{values.text(each.get('partition'))}:{values.text(each.get('offset'))}"


def _kind(value: object) -> str:
    kind = values.text(value).lower()
    return kind if kind in TITLES else ""


def _marks(text: str) -> Sequence[tuple[str, int]]:
    marks = [_MARK.fullmatch(each) for each in text.split(",")[:MARKS_MAX]]
    if not all(marks):
        message = "The page does not exist: begin with the latest events."
        raise ValueError(message)
    return [(each[1], int(each[2])) for each in marks if each is not None]


def _moment(at_ms: int, given: str) -> str:
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, OSError, ValueError) as error:
        message = f"{given[:40]!r} is not a time of the calendar."
        raise ValueError(message) from error
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
