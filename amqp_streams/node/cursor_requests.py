"""Requests about cursors and consumer groups: list, describe, move, remove.

Spec: AMQP Management 1.0 (working draft).

Laws: a cursor or group with links is not changed (409). A user without the right to know of a cursor gets the
same answer as if it did not exist. A change is answered when it is on the disk.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.node.cursors import KeptCursors
from amqp_streams.node.groups import Groups
from amqp_streams.node.lookups import Answering, sought
from amqp_streams.node.requests import Operations, RequestSteps, durable, listed
from amqp_streams.node.writes import Writes
from amqp_streams.policy import Right
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams import info, management
from amqp_streams.streams.consuming.cursors import Cursor, group_key
from amqp_streams.streams.groups.claims import UNNAMED
from amqp_streams.streams.management import Answer, Request, RequestError
from amqp_streams.streams.resets import requested_lookup, requested_positions
from amqp_streams.streams.steps import PARTITIONS_A_STEP, Steps
from amqp_streams.wire.offsets import offset_text
from amqp_streams.wire.types import Symbol, ULong, Value

PositionsIn: TypeAlias = Callable[[StoredLog], Mapping[int, int]]
"""The positions to which a cursor is moved, by partition of its log. Raises RequestError."""
EpochOf: TypeAlias = Callable[[int], int]
"""The recorded epoch of a group in a partition; 0 if no epoch was recorded."""


@dataclass(frozen=True, slots=True)
class CursorRequests:
    """Operations on cursors. `name` is the id of a cursor of `log`."""

    logs: Mapping[str, StoredLog]
    groups: Groups
    cursors: KeptCursors
    writes: Writes

    def operations(self) -> Operations:
        """The operations by name."""
        return {"READ": self.read, "QUERY": self.query, "UPDATE": self.update, "DELETE": self.delete}

    def query(self, request: Request) -> Steps[Answer]:
        """All cursors, or those of one log, that the user may see."""
        found = [
            (log, cursor)
            for log in asked_logs(self.logs, request)
            for cursor in self.cursors.of_log(log)
            if _visible(request, log, cursor)
        ]
        # An empty list would show the user that the log exists.
        if request.log and not found and not request.permissions.sees(request.log):
            raise missing(request, "")
        return listed(
            names.CURSORS,
            found,
            request,
            width=lambda item: len(item[1].positions),
            describe=lambda item: self._described(*item),
        )

    def read(self, request: Request) -> Steps[Answer]:
        """One cursor."""
        log = asked_log(self.logs, request)
        return Answer(management.OK, "OK", (yield from self._described(log, self._found(request, log))))

    def update(self, request: Request) -> RequestSteps:
        """Move a cursor."""
        found = yield from _sought(self.logs, request, self._changeable)
        return (yield from self.move(request, lambda log: requested_positions(request, log, found)))

    def move(self, request: Request, positions: PositionsIn) -> RequestSteps:
        """Move a cursor to these positions in its log."""
        return durable(self.writes, partial(self._move, request, positions))

    def _move(self, request: Request, positions: PositionsIn) -> Steps[Answer]:
        log = asked_log(self.logs, request)
        cursor = self._changeable(request, log)
        self.cursors.reset(cursor, positions(log))
        return Answer(management.OK, "moved", (yield from self._described(log, cursor)))

    def delete(self, request: Request) -> RequestSteps:
        """Remove a cursor."""
        return durable(self.writes, partial(self._delete, request))

    def _delete(self, request: Request) -> Answer:
        self.cursors.remove([self._changeable(request, asked_log(self.logs, request))])
        return Answer(management.NO_CONTENT, "deleted", {})

    def _found(self, request: Request, log: StoredLog) -> Cursor:
        cursor = self.cursors.by_id(log, request.name)
        # One error for both, so that ids cannot be tried.
        if cursor is not None and _visible(request, log, cursor):
            return cursor
        raise missing(request, f"log {log.name!r} has no cursor {request.name[:64]!r}")

    def _changeable(self, request: Request, log: StoredLog) -> Cursor:
        cursor = self._found(request, log)
        if not request.permissions.changes_cursor(log.name, cursor.key.group, cursor.user):
            raise request.permissions.refusal(Right.MANAGE, log.name)
        # The next settlement on the link would move the cursor again.
        if self.cursors.followers(cursor):
            raise RequestError(management.CONFLICT, "a link is using this cursor: close it first")
        return cursor

    def _described(self, log: StoredLog, cursor: Cursor) -> Steps[dict[Value, Value]]:
        self.cursors.present(cursor)
        followers = self.cursors.followers(cursor)
        members = {
            partition.index: each.request.member for each in followers for partition in each.partitions
        }
        return described_cursor(
            log, cursor, partial(_epoch, self.groups, log, cursor.key.group), members, active=bool(followers)
        )


@dataclass(frozen=True, slots=True)
class GroupRequests:
    """Operations on consumer groups.

    `name` is a group of `log`; its epochs and its cursor are removed together.
    """

    logs: Mapping[str, StoredLog]
    groups: Groups
    cursors: KeptCursors
    writes: Writes

    def operations(self) -> Operations:
        """The operations by name."""
        return {"READ": self.read, "QUERY": self.query, "UPDATE": self.update, "DELETE": self.delete}

    def query(self, request: Request) -> Steps[Answer]:
        """All groups, or those of one log, that the user may see."""
        found = [
            (log, group)
            for log in asked_logs(self.logs, request)
            for group in self._of(log)
            if request.permissions.sees_group(log.name, group)
        ]
        if request.log and not found and not request.permissions.sees(request.log):
            raise missing(request, "")
        return listed(
            names.GROUPS,
            found,
            request,
            width=lambda item: len(item[0].partitions),
            describe=lambda item: self._described(*item),
        )

    def read(self, request: Request) -> Steps[Answer]:
        """One group."""
        log = asked_log(self.logs, request)
        return Answer(management.OK, "OK", (yield from self._described(log, self._found(request, log))))

    def update(self, request: Request) -> RequestSteps:
        """Move the cursor of a group."""
        found = yield from _sought(self.logs, request, self._changeable)
        return (yield from self.move(request, lambda log: requested_positions(request, log, found)))

    def move(self, request: Request, positions: PositionsIn) -> RequestSteps:
        """Move the cursor of a group to these positions in its log."""
        return durable(self.writes, partial(self._move, request, positions))

    def _move(self, request: Request, positions: PositionsIn) -> Steps[Answer]:
        log = asked_log(self.logs, request)
        group = self._changeable(request, log)
        moved = positions(log)
        cursor = self._kept(log, group)
        # Without a cursor, the next start of a member is its own choice: a position would have no effect.
        if cursor is None:
            raise RequestError(
                management.CONFLICT,
                f"group {group[:64]!r} has no cursor: its members did not attach a durable source",
            )
        self.cursors.reset(cursor, moved)
        return Answer(management.OK, "moved", (yield from self._described(log, group)))

    def delete(self, request: Request) -> RequestSteps:
        """Remove a group: its cursor and its epochs."""
        return durable(self.writes, partial(self._delete, request))

    def _delete(self, request: Request) -> Answer:
        log = asked_log(self.logs, request)
        group = self._changeable(request, log)
        cursor = self._kept(log, group)
        # The cursor is looked up before: its key does not depend on the group's other states.
        self.groups.remove(log, group)
        if cursor is not None:
            self.cursors.remove([cursor])
        return Answer(management.NO_CONTENT, "deleted", {})

    def _kept(self, log: StoredLog, group: str) -> Cursor | None:
        return self.cursors.find(group_key(log.incarnation, group))

    def _of(self, log: StoredLog) -> Sequence[str]:
        kept = {cursor.key.group for cursor in self.cursors.of_groups(log) if cursor.key.group is not None}
        # A group may have a cursor and no link, or a link and no cursor.
        return sorted((kept | set(self.groups.of(log).groups())) - {UNNAMED})

    def _found(self, request: Request, log: StoredLog) -> str:
        group = request.name
        known = (
            bool(group)
            and group != UNNAMED
            and (self.groups.of(log).knows(group) or self._kept(log, group) is not None)
        )
        # One error for both, so that names cannot be tried.
        if known and request.permissions.sees_group(log.name, group):
            return group
        raise missing(request, f"log {log.name!r} has no consumer group {group[:64]!r}")

    def _changeable(self, request: Request, log: StoredLog) -> str:
        group = self._found(request, log)
        cursor = self._kept(log, group)
        if not request.permissions.changes_cursor(log.name, group, None if cursor is None else cursor.user):
            raise request.permissions.refusal(Right.MANAGE, log.name, group)
        links = len(self.groups.of(log).links(group))
        if links:
            raise RequestError(
                management.CONFLICT, f"group {group[:64]!r} has {links} links: close them first"
            )
        return group

    def _described(self, log: StoredLog, group: str) -> Steps[dict[Value, Value]]:
        links = self.groups.of(log).links(group)
        members = {link.partition: link.member for link in links if link.partition is not None}
        cursor = self._kept(log, group)
        if cursor is not None:
            self.cursors.present(cursor)
        return described_group(
            log, group, cursor, partial(_epoch, self.groups, log, group), members, len(links) - len(members)
        )


def described_cursor(
    log: StoredLog, cursor: Cursor, epoch: EpochOf, members: Mapping[int, str], *, active: bool | None
) -> Steps[dict[Value, Value]]:
    """The map of a cursor. `members`: the owners, by partition. `active`: a link uses it; None: unknown."""
    group = cursor.key.group
    partitions = yield from _described_positions(
        log, cursor, sorted(cursor.positions), None if group is None else epoch, members
    )
    return {**_whose(log, group, cursor), names.CURSOR_ACTIVE: active, names.INFO_PARTITIONS: partitions}


def described_group(  # noqa: PLR0917  what a group consists of
    log: StoredLog,
    group: str,
    cursor: Cursor | None,
    epoch: EpochOf,
    members: Mapping[int, str],
    waiting: int,
) -> Steps[dict[Value, Value]]:
    """The map of a group. `members`: the owners, by partition. `waiting`: how many links have none."""
    partitions = yield from _described_positions(log, cursor, range(len(log.partitions)), epoch, members)
    return {
        names.NAME: group,
        **_whose(log, group, cursor),
        names.CURSOR_ACTIVE: bool(members) or waiting > 0,
        names.CURSOR_WAITING: waiting,
        names.INFO_PARTITIONS: partitions,
    }


def asked_logs(logs: Mapping[str, StoredLog], request: Request) -> Sequence[StoredLog]:
    """The log that a request names, or all logs sorted by name. Raises like `asked_log`."""
    return [asked_log(logs, request)] if request.log else [log for _, log in sorted(logs.items())]


def asked_log(logs: Mapping[str, StoredLog], request: Request) -> StoredLog:
    """The log that a request is about.

    Raises:
        RequestError: the request does not name a log, or the log does not exist.
        PeerError: the user has no right to know of the log.
    """
    if not request.log:
        raise RequestError(management.BAD_REQUEST, f"name the log in {names.INFO_LOG!r}")
    log = logs.get(request.log)
    if log is None:
        raise missing(request, f"no log named {request.log[:128]!r}")
    return log


def _sought(
    logs: Mapping[str, StoredLog], request: Request, check: Callable[[Request, StoredLog], object]
) -> Answering[dict[int, int]]:
    """The positions of the time that a change goes to. A change that is refused looks nothing up."""
    try:
        log = asked_log(logs, request)
        check(request, log)
    except (RequestError, PeerError):
        return {}  # the change itself decides: only its answer waits for earlier changes
    return (yield from sought(*requested_lookup(request, log), request.connection))


def missing(request: Request, words: str) -> Exception:
    """The error for an object that does not exist or that the user may not see: both give the same error."""
    permissions = request.permissions
    if permissions.sees(request.log):
        return RequestError(management.NOT_FOUND, words)
    return permissions.refusal(Right.INFO, request.log)


def _visible(request: Request, log: StoredLog, cursor: Cursor) -> bool:
    return request.permissions.sees_cursor(log.name, cursor.key.group, cursor.user)


def _whose(log: StoredLog, group: str | None, cursor: Cursor | None) -> dict[Value, Value]:
    return {
        names.INFO_LOG: log.name,
        names.CURSOR_ID: None if cursor is None else cursor.id,
        names.CURSOR_GROUP: group,
        names.CURSOR_CONTAINER: None if cursor is None else cursor.key.container,
        names.CURSOR_LINK: None if cursor is None else cursor.key.link,
        names.CURSOR_USER: None if cursor is None else cursor.user,
        names.CURSOR_UPDATED: None if cursor is None else cursor.updated_ms,
    }


def _epoch(groups: Groups, log: StoredLog, group: str | None, partition: int) -> int:
    return groups.of(log).epoch(group or UNNAMED, partition)


def _described_positions(
    log: StoredLog,
    cursor: Cursor | None,
    indices: Iterable[int],
    epoch: EpochOf | None,
    members: Mapping[int, str],
) -> Steps[list[Value]]:
    described: list[Value] = []
    for index in indices:
        partition = log.partitions[index]
        position = None if cursor is None else cursor.positions.get(index)
        entry: dict[Value, Value] = {
            names.INFO_PARTITION: Symbol(str(index)),
            names.CURSOR_OFFSET: Symbol(offset_text(position - 1)) if position else None,
            names.CURSOR_NEXT: position,
            names.CURSOR_LAG: None
            if position is None
            else max(0, partition.end - max(position, partition.start)),
            names.CURSOR_EPOCH: None if epoch is None else ULong(epoch(index)),
            names.CURSOR_MEMBER: members.get(index),
        }
        described.append(info.encoded(entry))
        if len(described) % PARTITIONS_A_STEP == 0:
            yield
    return described
