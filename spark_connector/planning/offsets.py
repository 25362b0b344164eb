"""The positions of a query in its logs, as JSON in Spark's checkpoint, and positions as users write them.

Pure.

    {"version": 1, "streams": {"temps": {"incarnation": "…", "next": {"0": 1200, "1": 1180}}}}

`next`: for each partition, the offset of the first event that was not read. `incarnation`: distinguishes a
log from a later one with the same name. Two members are optional:

- `"initial": true`: the query has no batch yet.
- `"from": {"temps": {"0": 7}}`: where the batch that ends here begins, for partitions whose start may be
  unknown otherwise. Spark's checkpoint contains only the ends of batches, and Spark asks for the beginning
  again after a crash in the first batch. So the end of a batch contains its beginning.

`Offsets.of(offsets.json()) == offsets`. Equal offsets give equal strings, because keys are sorted: Spark
compares strings.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from spark_connector.errors import OffsetError

VERSION: Final = 1
OFFSET_MAX: Final = 10**16
"""The maximum of `next`: one more than the last offset. The engine's offsets have 16 digits."""
TIMESTAMP_MAX: Final = (1 << 63) // 1000 - 1
"""The maximum time in ms that Spark's timestamps, in microseconds, can represent."""

Numbers = Mapping[str, Mapping[int, int]]
"""A number for each partition of each log."""


class Edge(Enum):
    """The beginning or the end of a log at the time of planning."""

    EARLIEST = "earliest"
    LATEST = "latest"


Position = int | Edge


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The positions in one log.

    `next`: for each partition, the offset of the first event that was not read.
    """

    incarnation: str | None
    next: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Offsets:
    """See the docstring of the module. `begun` is the member `from`."""

    streams: Mapping[str, StreamOffsets]
    initial: bool = False
    begun: Numbers = field(default_factory=dict)

    def json(self) -> dict[str, object]:
        """Return the JSON object for Spark's checkpoint, with sorted keys."""
        found: dict[str, object] = {}
        if self.begun:
            found["from"] = _sorted(self.begun)
        if self.initial:
            found["initial"] = True
        found["streams"] = {
            name: {
                "incarnation": offsets.incarnation,
                "next": {str(index): offsets.next[index] for index in sorted(offsets.next)},
            }
            for name, offsets in sorted(self.streams.items())
        }
        found["version"] = VERSION
        return found

    @classmethod
    def of(cls, value: object) -> "Offsets":
        """Convert a JSON object that `json` returned.

        Raises:
            OffsetError: the object has another form or a later version.
        """
        if not isinstance(value, dict):
            raise OffsetError(_NO_OFFSETS, "", _REMEDY)
        version = value.get("version")
        # In Python, True equals 1.
        if version != VERSION or isinstance(version, bool):
            message = (
                f"offsets of version {version!r} cannot be read: this connector supports version {VERSION}"
            )
            raise OffsetError(message, "", _REMEDY)
        streams = {}
        for name, entry in _map(value.get("streams"), "streams").items():
            facts = _map(entry, f"log {name!r}")
            incarnation = facts.get("incarnation")
            if incarnation is not None and not isinstance(incarnation, str):
                raise OffsetError("the incarnation of a log must be text", f"log {name!r}", _REMEDY)
            streams[name] = StreamOffsets(
                incarnation, _numbers(facts.get("next"), f"log {name!r}", OFFSET_MAX)
            )
        begun = {
            name: _numbers(entry, f"'from' of log {name!r}", OFFSET_MAX)
            for name, entry in _map(value.get("from", {}), "from").items()
        }
        return cls(streams, initial=value.get("initial") is True, begun=begun)

    def text(self) -> str:
        """Return the JSON text, in the form that `startingOffsets` accepts."""
        return json.dumps(self.json())


@dataclass(frozen=True, slots=True)
class Positions:
    """Where to begin or end.

    `named`: for partitions that the user named. `others`: for all other partitions. `incarnations`: of the
    logs, if known.
    """

    others: Edge
    named: Mapping[str, Mapping[int, Position]] = field(default_factory=dict)
    incarnations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Times:
    """Where to begin or end by time: the first event at or after a time in ms since 1970 UTC.

    `others` None: the partition's beginning or end.
    """

    others: int | None
    named: Numbers = field(default_factory=dict)


_REMEDY: Final = (
    'Expected: earliest, latest, {"LOG": {"0": 23, "1": "earliest", "2": "latest"}} (-2 and -1 also mean'
    " earliest and latest), or an offset as lastProgress prints it"
)
_NO_OFFSETS: Final = "the value is not an offset of a query"
_WORDS: Final = {"earliest": Edge.EARLIEST, "latest": Edge.LATEST}
_NUMBERS: Final = {-2: Edge.EARLIEST, -1: Edge.LATEST}


def parse_positions(text: str, others: Edge) -> Positions:
    """Parse `startingOffsets` or `endingOffsets`.

    A word, JSON for each partition, an offset of `lastProgress`, or the whole `lastProgress`.

    Raises:
        OffsetError: the text has another form.
    """
    # As Spark's Kafka source: upper and lower case are equal.
    word = _WORDS.get(text.strip().lower())
    if word is not None:
        return Positions(word)
    value = _json(text)
    # The whole `lastProgress`, as users copy it from a log or a notebook.
    if isinstance(value.get("sources"), list):
        value = _of_progress(value["sources"])
    elif "endOffset" in value:
        value = _of_progress([value])
    if _is_offsets(value):
        offsets = Offsets.of(value)
        return Positions(
            others,
            {name: dict(found.next) for name, found in offsets.streams.items()},
            {
                name: found.incarnation
                for name, found in offsets.streams.items()
                if found.incarnation is not None
            },
        )
    return Positions(others, {name: _positions(entry, name) for name, entry in value.items()})


def parse_times(text: str | None, others: int | None) -> Times:
    """Parse `startingOffsetsByTimestamp` or `endingOffsetsByTimestamp`.

    `{"LOG": {"0": 1700000000000}}`, ms since 1970 UTC.

    Raises:
        OffsetError: the text has another form.
    """
    if text is None:
        return Times(others)
    named = {name: _numbers(entry, f"log {name!r}", TIMESTAMP_MAX) for name, entry in _json(text).items()}
    return Times(others, named)


def _is_offsets(value: dict[str, object]) -> bool:
    return isinstance(value.get("version"), int)


def _of_progress(sources: object) -> dict[str, object]:
    """Return the combined ends of the sources of `lastProgress` that belong to this connector."""
    assert isinstance(sources, list)
    streams: dict[str, object] = {}
    for source in sources:
        end = source.get("endOffset") if isinstance(source, dict) else None
        # The offset may be an object, or the JSON text of one.
        end = _json(end) if isinstance(end, str) else end
        if isinstance(end, dict) and _is_offsets(end):
            streams |= _map(end.get("streams"), "streams")
    # The progress is that of a query on other sources.
    if not streams:
        raise OffsetError("the progress has no endOffset of this source", "", _REMEDY)
    return {"version": VERSION, "streams": streams}


def _json(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    # RecursionError: deeply nested JSON.
    except (ValueError, RecursionError):
        raise OffsetError("the value is not earliest, latest or JSON", "", _REMEDY) from None
    return _map(value, "the value")


def _map(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise OffsetError(f"{what} is not a JSON object", "", _REMEDY)
    return value


def _numbers(value: object, where: str, high: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for name, number in _map(value, where).items():
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= high:
            raise OffsetError(
                f"{number!r} is not a number from 0 to {high}", f"{where}, partition {name}", _REMEDY
            )
        found[_partition(name, where)] = number
    return found


def _positions(value: object, stream: str) -> dict[int, Position]:
    where = f"log {stream!r}"
    found: dict[int, Position] = {}
    for name, entry in _map(value, where).items():
        position: Position | None = None
        if isinstance(entry, str):
            position = _WORDS.get(entry.strip().lower())
        elif isinstance(entry, int) and not isinstance(entry, bool):
            position = _NUMBERS.get(entry, entry if 0 <= entry <= OFFSET_MAX else None)
        if position is None:
            raise OffsetError(f"{entry!r} is not a position", f"{where}, partition {name}", _REMEDY)
        found[_partition(name, where)] = position
    return found


def _partition(name: str, where: str) -> int:
    # One text for each number: "01" would be a second name of partition 1.
    if not (name.isascii() and name.isdigit() and len(name) <= 9 and str(int(name)) == name):
        raise OffsetError(f"{name!r} is not a partition number (0, 1, 2, …)", where, _REMEDY)
    return int(name)


def _sorted(numbers: Numbers) -> dict[str, dict[str, int]]:
    return {
        name: {str(index): entry[index] for index in sorted(entry)} for name, entry in sorted(numbers.items())
    }
