"""A home that decides: claims, epochs and cursors of one bucket, by the same code as on a single node. Pure.

Spec: Event Streams 3.2, 4.5.

Laws: a partition is granted only when no earlier grant of it can be in force: its node reported that the link
has stopped, or the time of the grant is over. An epoch and the first position of a cursor are durable before
the link is granted. Only the link that owns a partition moves its cursor.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias, assert_never, cast

from amqp_streams import names
from amqp_streams.config import GroupSettings, Limits
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.homes.barriers import Barriers
from amqp_streams.homes.counts import Counts
from amqp_streams.homes.leases import Times
from amqp_streams.homes.messages import Leaves, Report, Reported
from amqp_streams.homes.owners import encoded, owner_key
from amqp_streams.homes.sessions import Claimant, Session, State
from amqp_streams.homes.states import BucketStates
from amqp_streams.node.groups import Groups
from amqp_streams.node.writes import Writes
from amqp_streams.storage.ports import Partition, StoredLog
from amqp_streams.streams.consuming.cursors import PREFIX, Cursor, CursorKey, Cursors, group_key, link_key
from amqp_streams.streams.groups.claims import Assigned, Change, Evicted, GroupLink, Leaving, Record, Refused
from amqp_streams.streams.redirects import NOWHERE

NODES_MAX: Final = 1024
"""Nodes that may report to one home: a node that restarts has a new id, and the old id is forgotten after a
lease.
"""

_UNKNOWN_LOG: Final = (
    "the node that decides about this group or cursor does not know the log: it was deleted, or that node has"
    " other kafka.topics"
)

LogOf: TypeAlias = Callable[[str], StoredLog | None]


@dataclass(frozen=True, slots=True)
class _Anywhere:
    """A partition whose end the home does not know: other nodes append to it.

    The node of the link compares a position with the end.
    """

    index: int
    end: int = 2**63


class Serving:
    """`term`: of this home. `wall_ms`: the wall clock, for the time at which a cursor was written last."""

    def __init__(
        self,
        states: BucketStates,
        term: int,
        log_of: LogOf,
        *,
        settings: GroupSettings,
        limits: Limits,
        times: Times,
        counts: Counts | None = None,
    ) -> None:
        self.sessions: Final[dict[str, Session]] = {}
        self.withdrawn = False
        self.wall_ms = 0
        self.urgent = False
        """Whether a receiver waits until the positions that moved are durable."""
        self.moved = False
        """Whether positions moved that no write has."""
        self._term: Final = term
        self.states: Final = states
        self._log_of: Final = log_of
        self._times: Final = times
        self._counts: Final = counts or Counts()
        self.writes: Final = Writes(states)
        self.groups: Final = Groups(
            states, self.writes, settings, limits, lambda _log: NOWHERE, self._changed
        )
        self.cursors: Final = Cursors(
            states.items(PREFIX),
            cursors_max=limits.cursors,
            positions_max=limits.cursor_positions,
            counts=self.groups.counts,
        )
        self._links: Final[dict[GroupLink, Claimant]] = {}
        self._names: Final[dict[tuple[str | None, str, str], Claimant]] = {}
        self._barriers: Final = Barriers(self._ready)
        self._of_state: Final[dict[str, dict[Claimant, None]]] = {}
        """By the key of a cursor's state, the links that have the cursor."""
        self._opened: Final[dict[str, Cursor]] = {}
        self._stored: Final[dict[str, dict[int, int]]] = {}
        """By the key of a cursor's state, the positions that are durable, from the first use on."""
        self._dirty: Final[dict[Session, None]] = {}
        self._serials = 0
        self._now_ms = 0
        states.on_written = lambda number, failure: self.writes.ended(number, failure, self._now_ms)

    # -- inputs

    def resume(self, reports: Iterable[tuple[Report, int]], now_ms: int) -> None:
        """Take over what nodes held under the home before, from their last reports and when these came."""
        self._now_ms = now_ms
        for report, came_ms in reports:
            session = self._session(report.node)
            if session is not None and report.number > session.number:
                self._take_in(session, report, came_ms)
                for each in session.known.values():
                    if each.serial is not None:
                        self._arrive(session, each)

    def report(self, report: Report, came_ms: int, now_ms: int) -> None:
        """Act on a report that came at `came_ms`. An older one than the last changes nothing."""
        self._now_ms = now_ms
        session = self._session(report.node)
        if session is None or report.number < session.number:
            return
        self._take_in(session, report, came_ms)
        self._dirty[session] = None
        for each in report.links:
            claimant = session.claimants.get(each.number)
            if claimant is not None:
                self._advance(claimant, each)
        if self.withdrawn:
            return
        for number in [number for number in session.claimants if number not in session.known]:
            self._end(session.claimants[number], None)
        self._stopped(session)
        for number, each in list(session.known.items()):
            if number not in session.claimants and number not in session.ends:
                self._arrive(session, each)

    def written(self, now_ms: int, committed: Callable[[], None]) -> None:
        """A transaction was committed: carry out what waited for it."""
        self._now_ms = now_ms
        committed()

    def tick(self, now_ms: int) -> None:
        """Called several times a second while the home's lease is in force."""
        self._now_ms = now_ms
        if self.withdrawn:
            return
        silent_ms = now_ms - self._times.outlasting_ms
        for session in [each for each in self.sessions.values() if each.heard_ms < silent_ms]:
            # All its grants are over: nothing bars the next owners. Links that wait end first, so that
            # they get nothing.
            for claimant in sorted(session.claimants.values(), key=lambda each: each.granted):
                self._end(claimant, None)
            del self.sessions[session.node]
            self._dirty.pop(session, None)
        self._barriers.expire(now_ms)
        self.groups.tick(now_ms)

    def withdraw(self, now_ms: int) -> None:
        """Grant nothing any more, and ask the nodes not to use what they have."""
        self._now_ms = now_ms
        self.withdrawn = True
        self._dirty.update(dict.fromkeys(self.sessions.values()))

    def settled(self, now_ms: int) -> bool:
        """Whether no grant of this home can be in force."""
        barring = self._barriers.nodes
        return all(
            each.yielded
            or self._over_ms(each) < now_ms
            or (each.node not in barring and not any(link.granted for link in each.claimants.values()))
            for each in self.sessions.values()
        )

    def flush(self) -> None:
        """Write the positions that moved."""
        self._write(self.cursors.take_moved(self.wall_ms), lambda _failure, _now_ms: None)
        self.moved = self.urgent = False

    def forget(self, cursors: Iterable[Cursor]) -> None:
        """These cursors, which no link has, are being removed."""
        for each in cursors:
            self._opened.pop(each.key.state, None)
            self._stored.pop(each.key.state, None)

    def uses(self, key: CursorKey) -> bool:
        """Whether a link has this cursor."""
        return key.state in self._of_state

    def granted(self, link: GroupLink) -> bool:
        """Whether this home has granted the link its partition: its node may send events on it."""
        claimant = self._links.get(link)
        return claimant is not None and claimant.granted

    def end_links(self, key: CursorKey) -> None:
        """Close the links that have this cursor: its subscription ends."""
        for claimant in list(self._of_state.get(key.state, ())):
            self._end(claimant, _stolen())

    def take_dirty(self) -> list[Session]:
        """The nodes that must get an answer."""
        dirty = [each for each in self._dirty if self.sessions.get(each.node) is each]
        self._dirty.clear()
        return dirty

    # -- nodes

    def _session(self, node: str) -> Session | None:
        if node not in self.sessions and len(self.sessions) >= NODES_MAX:
            return None
        return self.sessions.setdefault(node, Session(node))

    def _take_in(self, session: Session, report: Report, came_ms: int) -> None:
        session.number, session.heard_ms = report.number, came_ms
        session.yielded = report.yielded
        session.known = {each.number: each for each in report.links if not each.gone}

    def _stopped(self, session: Session) -> None:
        """The links that the node does not report have stopped."""
        for number in [number for number in session.ends if number not in session.known]:
            del session.ends[number]
        self._barriers.stopped(session.node, session.known)

    def _over_ms(self, session: Session) -> int:
        """When all grants of a node are over, whatever its clock says."""
        return session.promised_ms + self._times.outlasting_ms - self._times.lease_ms

    # -- links

    def _arrive(self, session: Session, reported: Reported) -> None:
        wanted = reported.wanted
        log = self._log_of(wanted.incarnation)
        claimant: Claimant | None = None
        try:
            if log is None:
                if session.awaits_log(reported.number, self._now_ms, self._times.unknown_ms):
                    return
                raise PeerError(names.NOT_FOUND, _UNKNOWN_LOG)
            claimant = Claimant(session.node, reported.number, wanted, log, since_ms=self._now_ms)
            self._claim(session, claimant, reported)
        except PeerError as error:
            if claimant is not None:
                self._forget(claimant)
            session.ends[reported.number] = error
            self._counts.ended += 1
            self._dirty[session] = None

    def _claim(self, session: Session, claimant: Claimant, reported: Reported) -> None:
        wanted, resumes = claimant.wanted, reported.serial is not None
        if wanted.durable:
            self.cursors.check_user(_key(wanted.incarnation, claimant), wanted.user)
        if resumes:
            self._check_resumed(claimant, reported)
        name = wanted.user, wanted.container, wanted.link
        older = self._names.get(name)
        if older is not None:
            if resumes:
                raise _stolen()
            self._end(older, _stolen())
        self._names[name] = session.claimants[claimant.number] = claimant
        if wanted.claim is None:
            self._open(claimant)
            return
        claim = wanted.claim
        if resumes:
            claim = replace(claim, partition=reported.partition, epoch=reported.epoch)
        link, changes = self.groups.claim(claimant.log, claim, self._now_ms)
        # It may be moved again, if it did not name its partition.
        link.claim = wanted.claim
        claimant.group_link = link
        self._links[link] = claimant
        self.groups.carry_out(claimant.log, changes, self._now_ms)

    def _check_resumed(self, claimant: Claimant, reported: Reported) -> None:
        """Check that no other link was granted the partition since.

        Raises:
            PeerError: another link was.
        """
        key = owner_key(claimant.wanted, reported.partition)
        if self.states.get(key) != encoded(claimant.node, claimant.number):
            raise PeerError(
                names.LINK_DETACH_FORCED,
                "the home of this group or cursor got no report of the link for too long, and another link"
                " got the partition: attach again",
            )

    def _changed(self, _log: StoredLog, change: Change, now_ms: int) -> None:
        claimant = self._links.get(change.link)
        if claimant is None:
            return
        match change:
            case Assigned():
                self._open(claimant)
            case Evicted(error=error) | Refused(error=error):
                self._end(claimant, error)
            case Leaving(error=error, within_ms=within_ms):
                if claimant.granted:
                    claimant.state = State.LEAVING
                    claimant.leaves = Leaves(claimant.number, error, within_ms)
                    self._dirty[self.sessions[claimant.node]] = None
                else:
                    self._end(claimant, error)
            case Record():
                raise AssertionError(now_ms)  # the groups handle this change themselves
            case _:
                assert_never(change)

    def _open(self, claimant: Claimant) -> None:
        """The link has its partitions: open its cursor, write that it owns them, then grant it."""
        wanted = claimant.wanted
        key = _key(wanted.incarnation, claimant)
        owner, value = (
            owner_key(wanted, claimant.partition),
            encoded(claimant.node, claimant.number),
        )
        changes: dict[str, bytes | None] = {} if self.states.get(owner) == value else {owner: value}
        known = self.cursors.find(key)
        # The cursor uses the number and the end of a partition only.
        partitions = [cast("Partition", _Anywhere(index)) for index in claimant.partitions]
        if wanted.durable:
            if not self.moved:
                self.cursors.take_moved(self.wall_ms)  # nothing: this gives the cursors the date
            # Nothing has moved the cursor before it is opened for the first time.
            stored = self._stored.setdefault(key.state, dict({} if known is None else known.positions))
            try:
                cursor, begun = self.cursors.attach(
                    key, wanted.user, partitions, lambda partition: wanted.starts[partition.index]
                )
            except PeerError as error:
                self._end(claimant, error)
                return
            claimant.cursor, claimant.stored = cursor, stored
            self._opened[key.state] = cursor
            self._of_state.setdefault(key.state, {})[claimant] = None
            changes |= begun

        def safe(failure: StorageError | None, _now_ms: int) -> None:
            if failure is None and claimant.cursor is not None:
                self.cursors.safe(claimant.cursor, partitions)
            if claimant.state is State.WAITING:
                self._ready(claimant)

        if not changes:
            self._ready(claimant)
            return
        try:
            self._write(changes, safe)
        except StorageError as error:
            # A cursor without its start on the disk must not stay in memory.
            if known is None and claimant.cursor is not None:
                self.cursors.remove([claimant.cursor])
            words = f"the states of the link cannot be stored: {error}"
            self._end(claimant, PeerError(names.RESOURCE_LIMIT_EXCEEDED, words))

    def _ready(self, claimant: Claimant) -> None:
        """Everything is durable: grant the link when no earlier grant can be in force."""
        if self.withdrawn:
            return
        if self._barriers.bar(claimant):
            return
        self._serials += 1
        claimant.serial = self._term, self._serials
        claimant.state = State.OWNING
        self._counts.granted += 1
        self._counts.decision_ms += self._now_ms - claimant.since_ms
        self._dirty[self.sessions[claimant.node]] = None

    def _end(self, claimant: Claimant, error: PeerError | None) -> None:
        """The link has ended, or must end with `error`."""
        session = self.sessions.get(claimant.node)
        if session is not None and error is not None:
            session.ends[claimant.number] = error
            self._counts.ended += 1
            self._dirty[session] = None
            if claimant.granted:
                self._barriers.add(claimant, self._over_ms(session))
        self._forget(claimant)

    def _forget(self, claimant: Claimant) -> None:
        self._barriers.forget(claimant)
        claimant.state = State.ENDED
        session, wanted = self.sessions.get(claimant.node), claimant.wanted
        if session is not None and session.claimants.get(claimant.number) is claimant:
            del session.claimants[claimant.number]
        name = wanted.user, wanted.container, wanted.link
        if self._names.get(name) is claimant:
            del self._names[name]
        if claimant.cursor is not None:
            state = claimant.cursor.key.state
            self._of_state[state].pop(claimant, None)
            if not self._of_state[state]:
                del self._of_state[state]
        if claimant.group_link is not None:
            self._links.pop(claimant.group_link, None)
            self.groups.release(claimant.log, claimant.group_link, self._now_ms)

    # -- cursors

    def _advance(self, claimant: Claimant, reported: Reported) -> None:
        """Move the cursor of a link that owns its partitions."""
        if not claimant.granted or reported.serial != claimant.serial or claimant.cursor is None:
            return
        for index, at in reported.positions:
            if index in claimant.partitions and at > claimant.cursor.positions[index]:
                self.cursors.advance(claimant.cursor, index, at)
                self.moved = True
                # The last positions of a link begin to be written at once.
                self.urgent = self.urgent or reported.urgent or reported.gone

    def _write(
        self, changes: dict[str, bytes | None], then: Callable[[StorageError | None, int], None]
    ) -> None:
        """Write cursors; when they are durable, report it to the nodes of their links."""
        if changes:
            # Not by key: a cursor that is moved back meanwhile is forgotten, and then opened anew.
            moved = [
                (self._stored[state], dict(cursor.positions), state)
                for state in changes
                for cursor in (self._opened.get(state),)
                if cursor is not None
            ]
            self.writes.write(changes, partial(self._written, moved, then))

    def _written(
        self,
        moved: Iterable[tuple[dict[int, int], dict[int, int], str]],
        then: Callable[[StorageError | None, int], None],
        failure: StorageError | None,
        now_ms: int,
    ) -> None:
        for stored, positions, state in moved if failure is None else ():
            stored.update(positions)
            for claimant in self._of_state.get(state, ()):
                self._dirty[self.sessions[claimant.node]] = None
        then(failure, now_ms)


def _key(incarnation: str, claimant: Claimant) -> CursorKey:
    claim = claimant.wanted.claim
    if claim is not None and claim.group:
        return group_key(incarnation, claim.group)
    return link_key(incarnation, claimant.wanted.container, claimant.wanted.link)


def _stolen() -> PeerError:
    return PeerError(names.LINK_STOLEN, "the same link was attached again")
