"""One Trigger or Subscription as its page shows it. Pure.

Laws: all texts are cut and all lists are bounded, whatever the object and the history have.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from web_console.gateway import values
from web_console.gateway.rows import TITLES
from web_console.showing.times import time_ms

CONDITIONS_MAX: Final = 50
PARTITIONS_MAX: Final = 1024
FAILURES_MAX: Final = 100
_SPEC_MAX: Final = 16 << 10
_BODY_MAX: Final = 2048
_OFFSET: Final = re.compile(r"[0-9]{1,16}")
_PARTITION: Final = re.compile(r"[0-9]{1,4}")
_CHOICE: Final = re.compile(r"event\.([0-9]{1,4})\.([0-9]{1,16})")
_ENDS: Final = ("dead-lettered", "dropped")
"""The ends of deliveries that a redrive repeats."""
_PAUSED: Final = "knative-gateway/paused"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of the status."""

    type: str
    status: str
    reason: str
    message: str
    since: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt, or the end of a delivery that failed.

    `position`: `PARTITION:OFFSET`. `choice`: the name of the field that selects the event for a redrive;
    empty: it cannot be selected. `is_event`: it is about one event, whose path can be shown.
    """

    at_ms: int | None
    event: str
    position: str
    attempt: int | None
    code: int | None
    reason: str
    body: str
    end: str
    choice: str = ""
    is_event: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """The last completed event of a partition, and how many events are still to come."""

    partition: str
    offset: int | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class Details:
    """What the page shows. `source_kind`: of the Broker or Channel, in lower case; empty: another kind than
    those of the map. `redriven`: events of a redrive; `redrive_left`: those that have not ended. `spec`: as
    JSON, with the filters. `counts`: the counters of deliveries.
    """

    source: str
    source_kind: str
    redriven: int
    redrive_left: int
    subscriber: str
    sink: str
    is_paused: bool
    spec: str
    conditions: Sequence[Condition]
    counts: Mapping[str, int]
    positions: Sequence[Position]
    failures: Sequence[Failure]


def details_of(document: Mapping[str, Any], deliveries: Mapping[str, Any]) -> Details:
    """Return the details of an object and of the answer to `deliveries`."""
    metadata, spec, status = (values.mapping(document.get(name)) for name in ("metadata", "spec", "status"))
    physical = values.mapping(status.get("physicalSubscription")) or status
    channel, redrive = values.mapping(spec.get("channel")), values.mapping(deliveries.get("redrive"))
    return Details(
        values.text(spec.get("broker") or channel.get("name")),
        kind
        if (kind := "broker" if spec.get("broker") else values.text(channel.get("kind")).lower()) in TITLES
        else "",
        values.number(redrive.get("events")) or 0,
        values.number(redrive.get("left")) or 0,
        values.text(physical.get("subscriberUri") or physical.get("replyUri")),
        values.text(physical.get("deadLetterSinkUri")),
        values.mapping(metadata.get("annotations")).get(_PAUSED) == "true",
        values.text(json.dumps(spec, indent=2, ensure_ascii=False), _SPEC_MAX),
        [_condition(each) for each in values.mappings(status.get("conditions"), CONDITIONS_MAX)],
        {
            values.text(name): count
            for name, count in list(values.mapping(status.get("deliveries")).items())[:CONDITIONS_MAX]
            if isinstance(count, int)
        },
        [
            Position(
                values.text(each.get("partition")),
                values.number(each.get("offset")),
                values.number(each.get("lag")),
            )
            for each in values.mappings(deliveries.get("positions"), PARTITIONS_MAX)
        ],
        list(_failures(values.mappings(deliveries.get("failures"), FAILURES_MAX))),
    )


def selected(form: Mapping[str, str]) -> list[dict[str, int]]:
    """Return the events that a form selects, as the API names them.

    Raises:
        ValueError: it selects none.
    """
    found = [match for name in form if (match := _CHOICE.fullmatch(name))]
    if not found:
        message = "Nothing is delivered again: select at least one event."
        raise ValueError(message)
    return [{"partition": int(each[1]), "offset": int(each[2])} for each in found[:FAILURES_MAX]]


def start_of(form: Mapping[str, str], now_ms: int) -> str:
    """Return where a replay starts, in the form of the API.

    Raises:
        ValueError: the start is not valid.
    """
    to, at, partition = (form.get(name, "").strip() for name in ("to", "at", "partition"))
    if to in {"earliest", "new"}:
        return to
    if to == "time":
        at_ms = time_ms(at, now_ms)
        try:
            moment = datetime.fromtimestamp(at_ms / 1000, UTC)
        except (OverflowError, OSError, ValueError) as error:
            message = f"{at[:40]!r} is not a time of the calendar."
            raise ValueError(message) from error
        return f"time={moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
    if to == "offset":
        if not _PARTITION.fullmatch(partition):
            message = "An offset belongs to one partition: give its number."
            raise ValueError(message)
        if not _OFFSET.fullmatch(at):
            message = f"{at[:40]!r} is not an offset: give a number such as 42"
            raise ValueError(message)
        return f"offset={int(partition)}={int(at)}"
    message = "Choose where to begin."
    raise ValueError(message)


def _condition(each: Mapping[str, Any]) -> Condition:
    names = ("type", "status", "reason", "message", "lastTransitionTime")
    return Condition(*(values.text(each.get(name)) for name in names))


def _failures(listed: Sequence[Mapping[str, Any]]) -> Iterator[Failure]:
    """Yield the failures. An event that failed several times can be selected once."""
    chosen = set[str]()
    for each in listed:
        partition, offset = values.number(each.get("partition")), values.number(each.get("offset"))
        choice = f"event.{partition}.{offset}"
        if each.get("end") not in _ENDS or not _CHOICE.fullmatch(choice) or choice in chosen:
            choice = ""
        chosen.add(choice)
        yield replace(_failure(each), choice=choice)


def _failure(each: Mapping[str, Any]) -> Failure:
    event = " ".join(values.text(each.get(name)) for name in ("event_source", "event_id")).strip()
    offset = values.number(each.get("offset"))
    partition = values.number(each.get("partition"))
    return Failure(
        values.number(each.get("at_ms")),
        event,
        values.text(each.get("partition")) + ("" if offset is None else f":{offset}"),
        values.number(each.get("attempt")),
        values.number(each.get("code")),
        values.text(each.get("reason")),
        values.text(each.get("body"), _BODY_MAX),
        values.text(each.get("end")),
        is_event=offset is not None and partition is not None and bool(event),
    )
