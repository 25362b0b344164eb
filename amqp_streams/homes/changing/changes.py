"""Changes of groups and cursors that have homes: decided at any node, made at the home. Pure.

The node that a user asks decides about the user's rights, and to which positions a cursor moves. The home
decides about everything else: whether the cursor exists, whose it is, and whether links use it.

Laws: a change is answered when it is in the state topic, or when its home is not there any more: then it is
in doubt. What another node asks for is checked before it has an effect.
"""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol, TypeAlias, cast

from amqp_streams import names
from amqp_streams.errors import StorageError
from amqp_streams.homes.buckets import BUCKETS, bucket_of
from amqp_streams.homes.changing.asking import WITHIN_MS, Asking
from amqp_streams.homes.messages import Asked, Change, Outcome, Positions
from amqp_streams.homes.owners import PREFIX as OWNER_PREFIX
from amqp_streams.homes.serving import Serving
from amqp_streams.homes.states import BucketStates
from amqp_streams.node.cursor_requests import CursorRequests, GroupRequests, asked_log, missing
from amqp_streams.node.cursors import KeptCursors
from amqp_streams.node.lookups import Answering, sought
from amqp_streams.node.requests import Operations, RequestSteps, carry_out, durable
from amqp_streams.node.writes import Wait
from amqp_streams.policy import Right
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams import management
from amqp_streams.streams.access import Identity, Permissions
from amqp_streams.streams.attach import Consuming
from amqp_streams.streams.consuming.cursors import PREFIX, Cursor, CursorKey, decoded, encoded, group_key
from amqp_streams.streams.groups.claims import UNNAMED, Claim
from amqp_streams.streams.groups.epochs import epoch_change
from amqp_streams.streams.management import Answer, Request, RequestError
from amqp_streams.streams.resets import requested_lookup, requested_positions

_MOVED: Final = "the home has moved to another node: the change may have been made, look whether it was"
_LATE: Final = "Kafka has not confirmed the change in time: it may have been made, look whether it was"
_UNKNOWN: Final = "the node that decides about this does not know the log yet: send the request again"
_WRONG: Final = "the node that was asked and the one that decides do not agree about the log"

OutcomeSteps: TypeAlias = Generator[Wait | None, None, Outcome]


class DoubtError(StorageError):
    """The change may have been made, or may be made later."""


class Here(Protocol):
    """What this node knows of buckets. See `kept.Here`."""

    def states(self, bucket: int) -> Mapping[str, bytes]:
        """The states that homes have committed; if the home is here, also what it is about to commit."""

    def serving(self, bucket: int) -> Serving | None:
        """The home, if it is here."""

    def deciding(self, bucket: int) -> Serving | None:
        """The home, if it is here, and neither waits for the lease of another one nor leaves."""


Read: TypeAlias = Callable[[Request, bytes | None], RequestSteps]
"""Describe a group or cursor. The value: of its state, newer than what this node has read."""


@dataclass(frozen=True, slots=True)
class _Somewhere:
    """A link at any node."""

    partitions: tuple[()] = ()


class HomeCursors(KeptCursors):
    """The cursors of a bucket at its home. `owners`: the keys to remove with them."""

    def __init__(self, serving: Serving, owners: Sequence[str]) -> None:
        super().__init__(BucketStates({}), serving.writes, cursors_max=0, positions_max=0)
        self._cursors, self._now_ms = serving.cursors, serving.wall_ms
        self._serving: Final = serving
        self._owners: Final = owners

    def followers(self, cursor: Cursor) -> Collection[Consuming]:
        """One for all links, which may be at any node."""
        return (cast("Consuming", _Somewhere()),) if self._serving.uses(cursor.key) else ()

    def reset(self, cursor: Cursor, positions: Mapping[int, int]) -> None:
        """See `KeptCursors.reset`."""
        # First what links have moved: their nodes wait to hear that it is durable.
        self._serving.flush()
        self._serving.forget([cursor])
        super().reset(cursor, positions)

    def remove(self, cursors: Collection[Cursor]) -> None:
        """See `KeptCursors.remove`."""
        super().remove(cursors)
        self._serving.forget(cursors)
        states = self._serving.states
        gone = {key: None for key in self._owners if states.get(key) is not None}
        if gone:
            self._serving.writes.write(gone)


class Carried(Permissions):
    """The rights that another node found for its user, on the log of a change."""

    __slots__ = ("_held",)

    def __init__(self, asked: Asked) -> None:
        super().__init__(Identity(asked.user), ())
        self._held: Final = asked.rights

    def allows(self, right: Right, log: str, group: str | None = None) -> bool:  # noqa: ARG002
        """See `Permissions.allows`. The log and the group are those of the change."""
        return right in self._held


class Changes:
    """`logs`: of the store. `now_ms`: CLOCK_BOOTTIME.

    `refreshed`: lets this node read all that homes have written. `read_group`, `read_cursor`: describe what
    was moved.
    """

    def __init__(
        self,
        logs: Mapping[str, StoredLog],
        here: Here,
        asking: Asking,
        now_ms: Callable[[], int],
        refreshed: Callable[[], Answering[None]],
        *,
        read_group: Read,
        read_cursor: Read,
    ) -> None:
        self._logs: Final = logs
        self._here: Final = here
        self._asking: Final = asking
        self._now_ms: Final = now_ms
        self._refreshed: Final = refreshed
        self._read_group: Final = read_group
        self._read_cursor: Final = read_cursor
        self._changing: Final[dict[Wait, tuple[int, Serving, int]]] = {}
        """What changes wait for, their homes, and until when."""

    def groups(self) -> Operations:
        """The operations on groups by name."""
        return {"UPDATE": self._move_group, "DELETE": self._remove_group}

    def cursors(self) -> Operations:
        """The operations on cursors by name."""
        return {"UPDATE": self._move_cursor, "DELETE": self._remove_cursor}

    def tick(self) -> None:
        """Called several times a second: ends the waits of changes that may not be made any more."""
        now_ms = self._now_ms() if self._changing else 0
        for wait, (bucket, serving, until_ms) in list(self._changing.items()):
            if not wait.over and self._here.serving(bucket) is not serving:
                wait.ended(DoubtError(_MOVED), 0)
            elif not wait.over and now_ms >= until_ms:
                wait.ended(DoubtError(_LATE), 0)
            if wait.over:
                self._changing.pop(wait, None)

    # -- requests of this node's users

    def _move_group(self, request: Request) -> RequestSteps:
        log = self._group_log(request)
        asked = self._of_group(request, log, Change.MOVE)
        asked = replace(asked, positions=(yield from self._positions(request, log)))
        return (yield from self._moved(request, asked, self._read_group))

    def _remove_group(self, request: Request) -> RequestSteps:
        result = yield from self.change(self._of_group(request, self._group_log(request), Change.REMOVE))
        return _answer(result)

    def _move_cursor(self, request: Request) -> RequestSteps:
        log = asked_log(self._logs, request)
        asked = self._of_cursor(request, log, (yield from self._cursor_of(request, log)), Change.MOVE)
        asked = replace(asked, positions=(yield from self._positions(request, log)))
        return (yield from self._moved(request, asked, self._read_cursor))

    def _remove_cursor(self, request: Request) -> RequestSteps:
        log = asked_log(self._logs, request)
        asked = self._of_cursor(request, log, (yield from self._cursor_of(request, log)), Change.REMOVE)
        return _answer((yield from self.change(asked)))

    def end(self, log: StoredLog, cursor: Cursor, user: str | None) -> OutcomeSteps:
        """End the subscription of a link: its client, which may read the log, has closed it."""
        key = cursor.key
        return self.change(
            Asked(
                0, _bucket(key), Change.END, names.CURSOR_TYPE, log.incarnation, None, key.container,
                key.link, user,
            )
        )  # fmt: skip

    def _group_log(self, request: Request) -> StoredLog:
        """The log of a group that the user may change, if it exists.

        Raises:
            RequestError: the group does not exist, or the user must not know of it.
            PeerError: the user has no right to change it.
        """
        log, group, permissions = asked_log(self._logs, request), request.name, request.permissions
        may_exist = len(group) > 0 and group != UNNAMED and permissions.sees_group(log.name, group)
        manages = permissions.allows(Right.MANAGE, log.name)
        if may_exist and (manages or self._knows(log, group)):
            # The members of a group without the right to manage may only read.
            permissions.require(Right.MANAGE, log.name, group)
            return log
        raise missing(request, f"log {log.name!r} has no consumer group {group[:64]!r}")

    def _knows(self, log: StoredLog, group: str) -> bool:
        key = group_key(log.incarnation, group)
        states = self._here.states(_bucket(key))
        epochs = (epoch_change(log.incarnation, group, each.index, 0) for each in log.partitions)
        return key.state in states or any(not states.keys().isdisjoint(each) for each in epochs)

    def _cursor_of(self, request: Request, log: StoredLog) -> Answering[Cursor]:
        """The cursor with the id that the request names, which the user may change.

        Raises:
            RequestError: it does not exist, or the user must not know of it.
            PeerError: the user has no right to change it.
        """
        permissions, cursor = request.permissions, self._known_cursor(log, request.name)
        if cursor is None:
            yield from self._refreshed()
            cursor = self._known_cursor(log, request.name)
        # One error for both, so that ids cannot be tried.
        if cursor is None or not permissions.sees_cursor(log.name, cursor.key.group, cursor.user):
            raise missing(request, f"log {log.name!r} has no cursor {request.name[:64]!r}")
        if not permissions.changes_cursor(log.name, cursor.key.group, cursor.user):
            raise permissions.refusal(Right.MANAGE, log.name)
        return cursor

    def _known_cursor(self, log: StoredLog, name: str) -> Cursor | None:
        state = f"{PREFIX}{log.incarnation}/{name}"
        for bucket in range(BUCKETS):
            value = self._here.states(bucket).get(state)
            if value is not None:
                return decoded(state, value)
        return None

    def _positions(self, request: Request, log: StoredLog) -> Generator[Wait, None, Positions]:
        found = yield from sought(*requested_lookup(request, log), request.connection)
        return tuple(sorted(requested_positions(request, log, found).items()))

    def _of_group(self, request: Request, log: StoredLog, change: Change) -> Asked:
        key = group_key(log.incarnation, request.name)
        user = request.permissions.identity.user
        return Asked(
            0, _bucket(key), change, names.GROUP_TYPE, log.incarnation, request.name, None, None, user,
            _rights(request.permissions, log, request.name),
        )  # fmt: skip

    def _of_cursor(self, request: Request, log: StoredLog, cursor: Cursor, change: Change) -> Asked:
        key, permissions = cursor.key, request.permissions
        return Asked(
            0, _bucket(key), change, names.CURSOR_TYPE, log.incarnation, key.group, key.container, key.link,
            permissions.identity.user, _rights(permissions, log, key.group),
        )  # fmt: skip

    def _moved(self, request: Request, asked: Asked, read: Read) -> RequestSteps:
        result = yield from self.change(asked)
        if result.status != management.OK:
            return _answer(result)
        described = yield from read(request, self._cursor_in(result, asked))
        return replace(described, description=result.description)

    def _cursor_in(self, result: Outcome, asked: Asked) -> bytes | None:
        """The value of the cursor that was moved, if the home gave one that is valid."""
        log = self._log_of(asked.incarnation)
        if result.cursor is None or log is None:
            return None
        value = result.cursor.encode()
        try:
            cursor = decoded(_key(asked).state, value)
        except StorageError:
            return None
        fits = all(0 <= index < len(log.partitions) for index in cursor.positions)
        return value if fits and cursor.key == _key(asked) else None

    def change(self, asked: Asked) -> OutcomeSteps:
        """Let the home make a change, wherever it is."""
        until_ms = self._now_ms() + WITHIN_MS
        while True:
            serving = self._here.deciding(asked.bucket)
            if serving is not None:
                return (yield from self._make(asked, serving))
            question = self._asking.begin(asked, self._now_ms(), until_ms)
            try:
                if not question.over.over:
                    yield question.over
            finally:
                self._asking.forget(question)
            if question.result is not None:
                return question.result

    # -- at the home

    def carry_out(self, asked: Asked) -> OutcomeSteps:
        """Make a change that another node asks for, if the home is here."""
        serving = self._here.deciding(asked.bucket)
        if serving is None:
            return Outcome(asked.number, management.UNAVAILABLE, "the home is elsewhere", moved=True)
        return (yield from self._make(asked, serving))

    def _make(self, asked: Asked, serving: Serving) -> OutcomeSteps:
        log, key, of_group = self._log_of(asked.incarnation), _key(asked), asked.type == names.GROUP_TYPE
        if log is None:
            return Outcome(asked.number, management.UNAVAILABLE, _UNKNOWN)
        fits = all(0 <= index < len(log.partitions) for index, _ in asked.positions)
        # A group ends by REMOVE.
        known = asked.type == names.CURSOR_TYPE or (of_group and asked.change is not Change.END)
        if not (fits and known) or _bucket(key) != asked.bucket:
            return Outcome(asked.number, management.BAD_REQUEST, _WRONG)
        name = asked.group or "" if of_group else key.id
        request = Request(
            asked.change, asked.type, name, {}, None, None, permissions=Carried(asked), log=log.name
        )
        types = {asked.type: {str(asked.change): partial(self._operation, serving, asked, log)}}
        answer = yield from self._watched(asked.bucket, serving, carry_out(types, request))
        cursor = serving.cursors.find(key) if answer.status == management.OK else None
        return Outcome(
            asked.number,
            answer.status,
            answer.description,
            None if cursor is None else encoded(cursor).decode(),
        )

    def _operation(self, serving: Serving, asked: Asked, log: StoredLog, request: Request) -> RequestSteps:
        of_group = asked.type == names.GROUP_TYPE
        tables = self._logs, serving.groups, HomeCursors(serving, _owners(asked, log)), serving.writes
        requests = GroupRequests(*tables) if of_group else CursorRequests(*tables)
        match asked.change:
            case Change.MOVE:
                return requests.move(request, lambda _log: dict(asked.positions))
            case Change.REMOVE:
                return requests.delete(request)
            case Change.END:
                return durable(serving.writes, partial(_end, serving, asked, tables[2]))

    def _watched(self, bucket: int, serving: Serving, steps: RequestSteps) -> RequestSteps:
        until_ms, last = self._now_ms() + WITHIN_MS, None
        try:
            while True:
                wait = next(steps)
                if wait is not None:
                    last = wait
                    self._changing[wait] = bucket, serving, until_ms
                yield wait
        except StopIteration as ended:
            answer: Answer = ended.value
            if last is not None and isinstance(last.failure, DoubtError):
                return Answer(management.IN_DOUBT, str(last.failure))
            return answer
        finally:
            steps.close()

    def _log_of(self, incarnation: str) -> StoredLog | None:
        return next((each for each in self._logs.values() if each.incarnation == incarnation), None)


def _end(serving: Serving, asked: Asked, cursors: KeptCursors) -> Answer:
    cursor = serving.cursors.find(_key(asked))
    if cursor is None or cursor.user != asked.user:
        raise RequestError(management.NOT_FOUND, "the subscription does not exist")
    serving.end_links(cursor.key)
    cursors.remove([cursor])
    return Answer(management.NO_CONTENT, "deleted", {})


def _rights(permissions: Permissions, log: StoredLog, group: str | None) -> frozenset[str]:
    return frozenset(str(right) for right in Right if permissions.allows(right, log.name, group))


def _owners(asked: Asked, log: StoredLog) -> list[str]:
    """The keys of owners that are removed with a group or cursor."""
    if asked.type == names.GROUP_TYPE:
        return [f"{OWNER_PREFIX}{log.incarnation}/{each.index}/{asked.group}" for each in log.partitions]
    return [f"{OWNER_PREFIX}{log.incarnation}/-/{_key(asked).id}"]


def _answer(result: Outcome) -> Answer:
    return Answer(result.status, result.description, {} if result.status == management.NO_CONTENT else None)


def _key(asked: Asked) -> CursorKey:
    return CursorKey(asked.incarnation, asked.group, asked.container, asked.link)


def _bucket(key: CursorKey) -> int:
    claim = None if key.group is None else Claim(key.group, None, None, "")
    return bucket_of(key.incarnation, claim, key.container or "", key.link or "")
