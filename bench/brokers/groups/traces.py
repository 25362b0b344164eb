"""What nodes and consumers have written down, as values. Pure.

Times are readings of CLOCK_BOOTTIME in microseconds, by all processes of one machine.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from amqp_streams.homes.records import KEY as HOME
from amqp_streams.streams.consuming.cursors import PREFIX as CURSOR
from amqp_streams.streams.groups.epochs import PREFIX as EPOCH

Slot = tuple[str, int]
"""What has one owner at a time: the key of a group or subscription, and a partition."""


class Link(NamedTuple):
    """A link of a node: the name of the process's trace, and its number there."""

    process: str
    number: int


@dataclass(frozen=True, slots=True)
class Grant:
    """The node has answered the attach of a link. `container`: the client's."""

    at_us: int
    link: Link
    slots: tuple[Slot, ...]
    container: str
    epoch: int | None


@dataclass(frozen=True, slots=True)
class Send:
    """Events of one partition were written to a link, which was allowed to it at `asked_us` or later."""

    asked_us: int
    link: Link
    partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Wrote:
    """What was sent has been given to the socket. `closed`: the link has ended with this write."""

    at_us: int
    link: Link
    closed: bool


@dataclass(frozen=True, slots=True)
class Serving:
    """A node has begun to decide for a bucket (`term`), or has ended (None)."""

    at_us: int
    process: str
    bucket: int
    term: int | None


@dataclass(slots=True)
class NodeTraces:
    """The traces of all node processes together. `ends`: when a link ended; the earliest time counts."""

    grants: list[Grant] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    writes: list[Wrote] = field(default_factory=list)
    servings: list[Serving] = field(default_factory=list)
    ends: dict[Link, int] = field(default_factory=dict)
    stops: list[tuple[int, str, str]] = field(default_factory=list)
    """When a process stopped itself, its trace, and where."""

    def add(self, process: str, lines: Iterable[str]) -> None:
        """Add the trace of one process."""
        for kind, *fields in _lines(lines):
            match kind:
                case "grant":
                    self._grant(process, fields)
                case "send":
                    asked_us, number, partition, first, last = fields
                    self.sends.append(Send(asked_us, Link(process, number), partition, first, last))
                case "wrote":
                    _, number, now_ms, closed = fields
                    self.writes.append(Wrote(now_ms * 1000, Link(process, number), closed))
                case "end":
                    self.ends.setdefault(Link(process, fields[1]), fields[0])
                case "serves" | "rests":
                    term = fields[2] if kind == "serves" else None
                    self.servings.append(Serving(fields[0], process, fields[1], term))
                case "stop":
                    self.stops.append((fields[0], process, fields[1]))
                case _:
                    pass

    def _grant(self, process: str, fields: Sequence[Any]) -> None:
        at_us, number, key, container, partition, epoch, positions = fields
        partitions = [partition] if partition is not None else [index for index, _ in positions]
        slots = tuple((key, index) for index in partitions)
        self.grants.append(Grant(at_us, Link(process, number), slots, container, epoch))


class Tenures:
    """Who had a slot when, from the grants of all nodes."""

    def __init__(self, grants: Iterable[Grant]) -> None:
        self._of_slot: dict[Slot, list[Grant]] = {}
        self.of_link: dict[Link, Grant] = {}
        for grant in sorted(grants, key=lambda each: each.at_us):
            self.of_link[grant.link] = grant
            for slot in grant.slots:
                self._of_slot.setdefault(slot, []).append(grant)

    @property
    def slots(self) -> Sequence[Slot]:
        """All slots that had an owner."""
        return list(self._of_slot)

    def of(self, slot: Slot) -> Sequence[Grant]:
        """The grants of a slot in their order."""
        return self._of_slot.get(slot, ())

    def successor(self, grant: Grant, slot: Slot, before_us: int) -> Grant | None:
        """The first later owner of the slot that began before this time."""
        grants = self._of_slot[slot]
        at = bisect_right(grants, grant.at_us, key=lambda each: each.at_us)
        return grants[at] if at < len(grants) and grants[at].at_us < before_us else None

    def owner(self, slot: Slot, at_us: int) -> Grant | None:
        """The last owner that had begun at this time."""
        grants = self._of_slot.get(slot, ())
        at = bisect_right(grants, at_us, key=lambda each: each.at_us)
        return grants[at - 1] if at else None

    def next(self, slot: Slot, at_us: int) -> Grant | None:
        """The first owner that began after this time."""
        grants = self._of_slot.get(slot, ())
        at = bisect_right(grants, at_us, key=lambda each: each.at_us)
        return grants[at] if at < len(grants) else None


class Event(NamedTuple):
    """A consumer got an event, or settles it, or has learned that the node settled it."""

    at_us: int
    slot: Slot
    container: str
    offset: int


@dataclass(slots=True)
class Journals:
    """The journals of all consumers together. `ids`: of the events that came, by slot and offset."""

    got: list[Event] = field(default_factory=list)
    ids: dict[tuple[Slot, int], set[str]] = field(default_factory=dict)
    settles: list[Event] = field(default_factory=list)
    settled: list[Event] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def add(self, lines: Iterable[str]) -> None:
        """Add the journal of one process."""
        for kind, at_us, key, container, *fields in _lines(lines):
            if kind == "error":
                self.errors.append(fields[0])
                continue
            slot, what = (key, fields[0]), fields[1]
            match kind:
                case "got":
                    for offset, id_ in what:
                        self.got.append(Event(at_us, slot, container, offset))
                        self.ids.setdefault((slot, offset), set()).add(id_)
                case "settles":
                    self.settles += [Event(at_us, slot, container, offset) for offset in what]
                case _:
                    self.settled.append(Event(at_us, slot, container, what))


def _lines(lines: Iterable[str]) -> Iterator[list[Any]]:
    """The whole lines: a process that was killed may have left a part of one."""
    for line in lines:
        if line.endswith("\n"):
            yield json.loads(line)


@dataclass(frozen=True, slots=True)
class StateRecord:
    """A record of the state topic. `number`: the term of a home or an epoch. `cursor`: the key of a cursor.

    `at_us`: no later than that, the record was written.
    """

    bucket: int
    at_us: int
    key: str
    number: int | None = None
    cursor: str | None = None
    positions: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def of(bucket: int, at_us: int, key: bytes, value: bytes | None) -> "StateRecord":
        """From the bytes of the record."""
        name = key.decode()
        fields = {} if value is None else json.loads(value)
        if value is not None and name == HOME:
            return StateRecord(bucket, at_us, name, number=int(fields["term"]))
        if value is not None and name.startswith(EPOCH):
            return StateRecord(bucket, at_us, name, number=int(fields["epoch"]))
        if value is not None and name.startswith(CURSOR):
            group = fields.get("group")
            cursor = f"group {group}" if group is not None else f"link {fields['container']} {fields['link']}"
            positions = tuple((int(index), int(at)) for index, at in fields["next"].items())
            return StateRecord(bucket, at_us, name, cursor=cursor, positions=positions)
        return StateRecord(bucket, at_us, name)
