"""The links of a node that homes decide about: what the node reports, and until when it may send. Pure.

Spec: Event Streams 4.5.

Laws: a grant holds for the time in the answer, counted from the moment at which the report was sent
that it answers, by the clock of this node. The home was asked after that moment, so the grant ends before the
lease of the home, whatever the clocks say. Nothing is sent on a link whose grant is over; the link pauses,
and continues when the home, or the next one, renews the grant. An answer of an earlier home changes nothing.
"""

from dataclasses import dataclass, field
from typing import Final, TypeAlias, assert_never

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.homes.leases import Times
from amqp_streams.homes.messages import (
    Answer,
    Ends,
    Leaves,
    Owns,
    Positions,
    Report,
    Reported,
    Serial,
    Stored,
    Verdict,
)
from amqp_streams.homes.protocol.reports import LINKS_BYTES_MAX, reserved
from amqp_streams.homes.records import HomeRecord
from amqp_streams.streams.groups.claims import Wanted

SENT_MAX: Final = 16
"""How many reports to a home may be unanswered before an answer to the oldest one renews nothing."""
_STOPPED: Final = "the node was stopped for longer than its grant"


@dataclass(slots=True, eq=False)
class _Link:
    number: int
    bucket: int
    wanted: Wanted
    asked_ms: int
    reserved: int
    """Bytes that it has at most in a report."""
    serial: Serial | None = None
    partition: int | None = None
    epoch: int | None = None
    until_ms: int = 0
    positions: dict[int, int] = field(default_factory=dict)
    stored: dict[int, int] = field(default_factory=dict)
    urgent: bool = False
    leaving: bool = False
    gone: bool = False
    gone_ms: int = 0
    gone_report: int = 0
    """The first report that has its end."""


@dataclass(slots=True, eq=False)
class _Home:
    """A bucket, and its home as far as this node knows it. `sent`: when each report was sent."""

    record: HomeRecord | None = None
    links: dict[int, _Link] = field(default_factory=dict)
    reserved: int = 0
    sent: dict[int, int] = field(default_factory=dict)
    due: bool = False
    yielded: bool = False
    reported_ms: int | None = None
    processed_ms: int = 0


# -- effects, which the shell performs in their order


@dataclass(frozen=True, slots=True)
class Send:
    """Send this report to the home at this address. `home`: the id of its process."""

    address: str
    report: Report
    home: str


@dataclass(frozen=True, slots=True)
class Granted:
    """Answer the attach of this link: its partition, its epoch, and the positions at which it begins."""

    number: int
    partition: int | None
    epoch: int | None
    positions: Positions


@dataclass(frozen=True, slots=True)
class Denied:
    """Refuse the attach of this link."""

    number: int
    error: PeerError


@dataclass(frozen=True, slots=True)
class Leave:
    """Send nothing more; close the link when all is settled, or after `within_ms`, and call `detach`."""

    number: int
    error: PeerError
    within_ms: int


@dataclass(frozen=True, slots=True)
class Closed:
    """Close the link now. It may not get one more byte: what waits for its socket is thrown away."""

    number: int
    error: PeerError


@dataclass(frozen=True, slots=True)
class Durable:
    """These positions are durable: settle the deliveries below them that wait for it."""

    number: int
    positions: Positions


Effect: TypeAlias = Send | Granted | Denied | Leave | Closed | Durable


class Reporting:
    """`node`: the id of this process, which no other process ever has."""

    def __init__(self, node: str, times: Times) -> None:
        self._node: Final = node
        self._times: Final = times
        self._effects: list[Effect] = []
        self._homes: Final[dict[int, _Home]] = {}
        self._links: Final[dict[int, _Link]] = {}
        self._numbers = 0
        self._reports = 0

    def take_effects(self) -> list[Effect]:
        """The effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    # -- links

    def attach(self, wanted: Wanted, bucket: int, now_ms: int) -> int:
        """A link asks for what a home decides. Returns its number.

        The effect `Granted` or `Denied` follows.
        """
        self._numbers += 1
        link, home = _Link(self._numbers, bucket, wanted, now_ms, reserved(wanted)), self._home(bucket)
        if home.reserved + link.reserved > LINKS_BYTES_MAX:
            self._effects.append(Denied(link.number, _full()))
            return link.number
        home.reserved += link.reserved
        self._links[link.number] = home.links[link.number] = link
        self._due(link)
        self._report(bucket, now_ms)
        return link.number

    def detach(self, number: int, now_ms: int) -> None:
        """The link has ended, in any state. An unknown link changes nothing."""
        link = self._links.get(number)
        if link is not None:
            self._go(link, now_ms)
            self._report(link.bucket, now_ms)

    def stop(self, now_ms: int) -> None:
        """The node stops: all links have ended. Reports it to their homes at once; wait until `busy` is
        false.
        """
        for link in list(self._links.values()):
            self._go(link, now_ms)
        for bucket, home in self._homes.items():
            home.reported_ms = None
            self._report(bucket, now_ms)

    @property
    def busy(self) -> bool:
        """Whether there are links, or ends of links that no home has confirmed."""
        return bool(self._links)

    def moved(self, number: int, positions: Positions, now_ms: int, *, urgent: bool = False) -> None:
        """All records below these positions are settled.

        `urgent`: the receiver waits until that is durable.
        """
        link = self._links.get(number)
        if link is None or link.gone:
            return
        link.positions.update(positions)
        if urgent:
            link.urgent = True
            self._due(link)
            self._report(link.bucket, now_ms)

    def may_send(self, number: int, now_ms: int) -> bool:
        """Whether events may be written to the link's socket now: to be asked before each write."""
        link = self._links.get(number)
        return (
            link is not None
            and link.serial is not None
            and not (link.leaving or link.gone)
            and now_ms < link.until_ms
        )

    def may_grant(self, number: int, now_ms: int) -> bool:
        """Whether the effect `Granted` of a link may be carried out now: its grant has not ended since.

        If it has, the process was stopped between the answer of the home and this call, and another link may
        have been granted the partition: the link ends.
        """
        link = self._links.get(number)
        if link is None or link.gone:
            return False
        if now_ms >= link.until_ms:
            self._close(link, _unreachable(_STOPPED), now_ms)
            return False
        return True

    def holds(self, number: int, at_ms: int) -> bool:
        """Whether the grant of the link, which may be leaving, lasts until then."""
        link = self._links.get(number)
        return link is not None and link.serial is not None and not link.gone and at_ms < link.until_ms

    def wrote(self, number: int, now_ms: int) -> None:
        """A write that was allowed has ended.

        If the grant ended meanwhile, the process was stopped between the question and the write: the link
        ends.
        """
        link = self._links.get(number)
        if link is not None and not link.gone and now_ms >= link.until_ms:
            self._close(link, _unreachable(_STOPPED), now_ms)

    # -- homes

    def home(self, bucket: int, record: HomeRecord, now_ms: int) -> None:
        """The state topic has this record. One of an earlier term changes nothing."""
        home = self._home(bucket)
        known = home.record
        if known is not None and record.term < known.term:
            return
        if known is None or record.term > known.term:
            home.yielded = False
            home.sent.clear()
            home.due = bool(home.links)
        home.record = record
        self._report(bucket, now_ms)

    def record(self, bucket: int) -> HomeRecord | None:
        """The home of a bucket, as far as this node knows it."""
        home = self._homes.get(bucket)
        return None if home is None else home.record

    def answer(self, answer: Answer, now_ms: int) -> None:
        """A home has answered."""
        home = self._home(answer.bucket)
        if home.record is None or answer.term != home.record.term:
            return
        if answer.withdrawn:
            self._yield(home, answer.term)
        if answer.processed:
            home.processed_ms = now_ms
            until_ms = self._until_ms(home, answer)
            for verdict in answer.verdicts:
                self._obey(home, verdict, until_ms, now_ms)
            for link in home.links.values():
                # A grant of an earlier home holds until the new one has granted the link again.
                if link.serial is not None and link.serial[0] == answer.term:
                    link.until_ms = max(link.until_ms, until_ms)
            for link in [
                link for link in home.links.values() if link.gone and answer.number >= link.gone_report
            ]:
                self._forget(link)
        self._report(answer.bucket, now_ms)

    def tick(self, now_ms: int) -> None:
        """Called at least every `report_gap_ms`."""
        for bucket in self._homes:
            self._report(bucket, now_ms)

    # -- private

    def _home(self, bucket: int) -> _Home:
        return self._homes.setdefault(bucket, _Home())

    def _yield(self, home: _Home, term: int) -> None:
        """The home calls its grants back."""
        home.yielded = home.due = True
        for link in home.links.values():
            if link.serial is not None and link.serial[0] <= term:
                link.until_ms = 0

    def _until_ms(self, home: _Home, answer: Answer) -> int:
        """When the grants of this answer end."""
        sent_ms = home.sent.get(answer.number)
        return 0 if sent_ms is None or home.yielded else sent_ms + answer.remaining_ms

    def _obey(self, home: _Home, verdict: Verdict, until_ms: int, now_ms: int) -> None:
        link = home.links.get(verdict.number)
        if link is None or link.gone:
            return
        match verdict:
            case Owns():
                # A late answer must not grant what another link may have got since: the home repeats it.
                if link.serial is not None or now_ms < until_ms:
                    self._own(link, verdict)
            case Leaves(error=error, within_ms=within_ms):
                if link.serial is None:
                    self._close(link, error, now_ms)
                elif not link.leaving:
                    link.leaving = True
                    self._due(link)
                    self._effects.append(Leave(link.number, error, within_ms))
            case Ends(error=error):
                self._close(link, error, now_ms)
                # Its last positions count nothing.
                self._forget(link)
            case Stored(positions=positions):
                link.stored.update(positions)
                link.urgent = link.urgent and any(
                    at > link.stored.get(index, -1) for index, at in link.positions.items()
                )
                self._effects.append(Durable(link.number, positions))
            case _:
                assert_never(verdict)

    def _own(self, link: _Link, verdict: Owns) -> None:
        before = link.serial
        if before is not None and before >= verdict.serial:
            return
        link.serial = verdict.serial
        if before is None:
            link.partition, link.epoch = verdict.partition, verdict.epoch
            link.positions = dict(verdict.positions)
            self._effects.append(Granted(link.number, verdict.partition, verdict.epoch, verdict.positions))
        self._due(link)

    def _close(self, link: _Link, error: PeerError, now_ms: int) -> None:
        self._effects.append(
            Denied(link.number, error) if link.serial is None else Closed(link.number, error)
        )
        self._go(link, now_ms)

    def _go(self, link: _Link, now_ms: int) -> None:
        """The link has ended. Reports its last positions until the home has confirmed them."""
        if link.gone:
            return
        link.gone = True
        link.gone_ms, link.gone_report = now_ms, self._reports + 1
        self._due(link)
        if link.serial is None:
            self._forget(link)

    def _forget(self, link: _Link) -> None:
        if self._links.pop(link.number, None) is not None:
            home = self._homes[link.bucket]
            del home.links[link.number]
            home.reserved -= link.reserved

    def _due(self, link: _Link) -> None:
        self._homes[link.bucket].due = True

    def _report(self, bucket: int, now_ms: int) -> None:
        """Report if something has changed, or it is time."""
        home = self._homes[bucket]
        if not home.links and not home.due:
            return
        since_ms = None if home.reported_ms is None else now_ms - home.reported_ms
        if since_ms is not None and (
            since_ms < self._times.report_gap_ms or (not home.due and since_ms < self._times.renew_ms)
        ):
            return
        home.reported_ms, home.due = now_ms, False
        self._give_up(home, now_ms)
        if home.record is None or home.record.let_go:
            return
        self._reports += 1
        home.sent[self._reports] = now_ms
        while len(home.sent) > SENT_MAX:
            del home.sent[next(iter(home.sent))]
        links = tuple(_reported(link) for link in home.links.values())
        report = Report(self._node, bucket, home.record.term, self._reports, links, yielded=home.yielded)
        self._effects.append(Send(home.record.address, report, home.record.node))

    def _give_up(self, home: _Home, now_ms: int) -> None:
        """Close the links that were paused or unanswered for too long."""
        for link in list(home.links.values()):
            if link.gone:
                if now_ms - link.gone_ms >= self._times.paused_ms:
                    self._forget(link)
                continue
            heard_ms = max(link.until_ms if link.serial else link.asked_ms, home.processed_ms)
            if now_ms - heard_ms >= self._times.paused_ms:
                self._close(link, _unreachable("the home does not answer"), now_ms)


def _reported(link: _Link) -> Reported:
    return Reported(
        link.number,
        link.wanted,
        link.serial,
        link.partition,
        link.epoch,
        tuple(sorted(link.positions.items())),
        tuple(sorted(link.stored.items())),
        link.urgent,
        link.leaving,
        link.gone,
    )


def _full() -> PeerError:
    return PeerError(
        names.RESOURCE_LIMIT_EXCEEDED,
        f"the links of this node that one home decides about would need more than {LINKS_BYTES_MAX} bytes in"
        " a report: connect to another node, or use shorter names of containers, links and groups",
    )


def _unreachable(words: str) -> PeerError:
    return PeerError(
        names.LINK_DETACH_FORCED,
        f"the node that decides about this group or cursor cannot be reached ({words}): attach again later",
    )
