"""What a home knows of one node: its last report, the links that it claims for, and what it was promised.
Pure.

Law: an answer has everything in which the home's decisions differ from the node's last report, so an answer
that was lost is repeated by the next one.
"""

from dataclasses import dataclass, field
from enum import Enum, auto

from amqp_streams.errors import PeerError
from amqp_streams.homes.messages import (
    Answer,
    Ends,
    Leaves,
    Owns,
    Positions,
    Reported,
    Serial,
    Stored,
    Verdict,
)
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.consuming.cursors import Cursor
from amqp_streams.streams.groups.claims import GroupLink, Wanted


class State(Enum):
    """The state of a link at the home."""

    WAITING = auto()
    """For a partition, for its epoch, or for the first position of its cursor."""
    BARRED = auto()
    """It has its partition, but a grant of the owner before it may still be in force."""
    OWNING = auto()
    LEAVING = auto()
    ENDED = auto()


@dataclass(slots=True, eq=False)
class Claimant:
    """A link of a node, at the home.

    `since_ms`: when it was reported first. `stored`: the durable positions of its cursor.
    """

    node: str
    number: int
    wanted: Wanted
    log: StoredLog
    since_ms: int = 0
    state: State = State.WAITING
    group_link: GroupLink | None = None
    cursor: Cursor | None = None
    serial: Serial | None = None
    leaves: Leaves | None = None
    stored: dict[int, int] = field(default_factory=dict)

    @property
    def partition(self) -> int | None:
        """The partition that it is bound to."""
        return None if self.group_link is None else self.group_link.partition

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions that it reads."""
        partition = self.partition
        return self.wanted.partitions if partition is None else (partition,)

    @property
    def granted(self) -> bool:
        """Whether its node may send events on it."""
        return self.state in {State.OWNING, State.LEAVING}

    def positions(self) -> Positions:
        """Where its cursor is now."""
        if self.cursor is None:
            return ()
        return tuple((index, self.cursor.positions[index]) for index in self.partitions)


@dataclass(slots=True, eq=False)
class Session:
    """A node that reports to this home.

    `number`, `known`: of its last report. `heard_ms`: when that came. `promised_ms`: when the last grant ends
    that it was given, by the clock of the home. `ends`: links that it must close, until its reports lack
    them.
    """

    node: str
    number: int = 0
    heard_ms: int = 0
    promised_ms: int = 0
    yielded: bool = False
    known: dict[int, Reported] = field(default_factory=dict)
    claimants: dict[int, Claimant] = field(default_factory=dict)
    ends: dict[int, PeerError] = field(default_factory=dict)
    unknown: dict[int, int] = field(default_factory=dict)
    """Since when links have asked whose log this node does not know."""

    def awaits_log(self, number: int, now_ms: int, within_ms: int) -> bool:
        """Whether a link waits until this node knows its log, which another node may have created just now.

        The next report asks again.
        """
        self.unknown = {each: since_ms for each, since_ms in self.unknown.items() if each in self.known}
        return now_ms - self.unknown.setdefault(number, now_ms) < within_ms

    def answer(self, bucket: int, term: int, now_ms: int, lease_end_ms: int, *, withdrawn: bool) -> Answer:
        """The answer to its last report. The node may use what it owns until `lease_end_ms`."""
        remaining_ms = 0 if withdrawn else max(0, lease_end_ms - now_ms)
        if remaining_ms:
            self.promised_ms = max(self.promised_ms, lease_end_ms)
        return Answer(
            bucket, term, self.number, processed=True, remaining_ms=remaining_ms,
            verdicts=tuple(self._verdicts()), withdrawn=withdrawn,
        )  # fmt: skip

    def _verdicts(self) -> list[Verdict]:
        verdicts: list[Verdict] = [Ends(number, error) for number, error in self.ends.items()]
        for number, claimant in self.claimants.items():
            known = self.known.get(number)
            if known is None:  # it has ended, and the home that leaves releases nothing
                continue
            if claimant.serial is not None and known.serial != claimant.serial:
                verdicts.append(
                    Owns(
                        number,
                        claimant.serial,
                        claimant.partition,
                        None if claimant.group_link is None else claimant.group_link.epoch,
                        claimant.positions(),
                    )
                )
            if claimant.leaves is not None and not known.leaving:
                verdicts.append(claimant.leaves)
            before = dict(known.stored)
            stored = tuple((at, claimant.stored[at]) for at in claimant.partitions if at in claimant.stored)
            if any(position > before.get(at, -1) for at, position in stored):
                verdicts.append(Stored(number, stored))
        return verdicts
