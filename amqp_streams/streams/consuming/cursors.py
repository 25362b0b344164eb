"""Cursors: where a durable consumer or a group continues. Spec: Event Streams 3.2; AMQP 3.5.5, 3.5.6.

Laws: a position is the number of the next record to deliver, so no unsettled record is below it. It never
decreases, except by a reset. A cursor belongs to the user who began it. The disk is at most one flush
interval behind.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, TypeAlias

from amqp_streams import names
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.storage.ports import Partition, Use
from amqp_streams.streams.group_counts import GroupCounts, KnownBy

PREFIX: Final = "cursor/"
"""The key of a state is this prefix, the log's incarnation, a slash, and the cursor's id."""
VERSION: Final = 1
NAME_CHARACTERS_MAX: Final = 1024
"""Of a container-id or link name that identifies a cursor: all cursors are in memory."""

Changes: TypeAlias = dict[str, bytes | None]


@dataclass(frozen=True, slots=True)
class CursorKey:
    """Identifies a cursor within a log: a consumer group, or the container and the name of a link."""

    incarnation: str
    group: str | None
    container: str | None
    link: str | None

    @property
    def id(self) -> str:
        """A short, permanent and opaque id: names may be long and contain any character."""
        # JSON, because no separator is safe in names with any character.
        identity = json.dumps([self.group, self.container, self.link]).encode()
        return blake2b(identity, digest_size=12).hexdigest()

    @property
    def state(self) -> str:
        """The key of its state."""
        return f"{PREFIX}{self.incarnation}/{self.id}"


def group_key(incarnation: str, group: str) -> CursorKey:
    """The key of a group's cursor.

    Its members share it, so that a hand-over repeats nothing and skips nothing.
    """
    return CursorKey(incarnation, group, None, None)


def link_key(incarnation: str, container: str, link: str) -> CursorKey:
    """The key of one link's cursor.

    Raises:
        PeerError: a name is empty or too long.
    """
    for what, name in (("container's id", container), ("link's name", link)):
        if not 0 < len(name) <= NAME_CHARACTERS_MAX:
            description = (
                f"a durable source needs a container-id and a link name: this {what} has {len(name)}"
                " characters, "
            )
            raise PeerError(names.INVALID_FIELD, f"{description}and must have 1 to {NAME_CHARACTERS_MAX}")
    return CursorKey(incarnation, None, container, link)


@dataclass(slots=True, eq=False)
class Cursor:
    """One cursor.

    `positions`: by partition, the number of the next record. `updated_ms`: when it was last written.

    `begun`: partitions whose first position may not be on the disk yet.
    """

    key: CursorKey
    user: str | None
    positions: dict[int, int] = field(default_factory=dict)
    updated_ms: int = 0
    begun: set[int] = field(default_factory=set)

    @property
    def id(self) -> str:
        """Its id for people and programs, unique within its log."""
        return self.key.id


class Cursors:
    """All cursors of a node.

    Changes are returned in the form of `States.write`; an empty one needs no write.
    """

    def __init__(
        self,
        items: Iterable[tuple[str, bytes]] = (),
        *,
        cursors_max: int = 10_000,
        positions_max: int = 2_000_000,
        counts: GroupCounts | None = None,
    ) -> None:
        """Load the states whose keys begin with `PREFIX`. `counts`: where groups with a cursor are counted.

        Raises:
            StorageError: a later version wrote one of them.
        """
        loaded = [decoded(key, value) for key, value in items]
        self._cursors_max: Final = cursors_max
        self._positions_max: Final = positions_max
        self._positions = 0
        self._counts: Final = GroupCounts() if counts is None else counts
        self._by_id: dict[tuple[str, str], Cursor] = {}
        self._cursors: dict[CursorKey, Cursor] = {}
        self._of_log: dict[str, dict[CursorKey, Cursor]] = {}
        for cursor in loaded:
            self._add(cursor)
        self._dirty: dict[Cursor, None] = {}
        self._now_ms = max((cursor.updated_ms for cursor in loaded), default=0)

    def attach(
        self,
        key: CursorKey,
        user: str | None,
        partitions: Collection[Partition],
        start: Callable[[Partition], int],
    ) -> tuple[Cursor, Changes]:
        """The cursor for a link of this user, created if missing, with a position for each of `partitions`.

        A partition without a position begins at `start`. A position beyond a partition's end goes back to the
        end: the log lost events that were not synced, and their numbers are assigned again to events that
        must be delivered. The changes must be on the disk before the link gets its first event: otherwise a
        crash could forget the start. Call `safe` then. Until that call, each attach returns the changes
        again.

        Raises:
            PeerError: the cursor belongs to another user, or the node has reached its limit of cursors.
        """
        # First: the cursor of another user is refused whatever the limits are.
        self.check_user(key, user)
        found = self._cursors.get(key)
        # Both limits before the first change: a refused attach leaves nothing behind.
        if found is None and len(self._cursors) >= self._cursors_max:
            description = (
                f"this node keeps at most {self._cursors_max} cursors: remove one, or raise the limit"
                " 'cursors'"
            )
            raise PeerError(names.RESOURCE_LIMIT_EXCEEDED, description)
        new = sum(found is None or each.index not in found.positions for each in partitions)
        if new and self._positions + new > self._positions_max:
            description = (
                f"this node keeps at most {self._positions_max} cursor positions, one for each partition of"
                " each cursor: remove cursors, or raise the limit 'cursor_positions'"
            )
            raise PeerError(names.RESOURCE_LIMIT_EXCEEDED, description)
        cursor = found or self._add(Cursor(key, user))
        self._positions += new
        begins = {
            each.index: start(each) if each.index not in cursor.positions else each.end
            for each in partitions
            # A position beyond the end: see the docstring.
            if cursor.positions.get(each.index, each.end + 1) > each.end
        }
        cursor.positions.update(begins)
        # Until `safe`: a crash may still forget these positions.
        cursor.begun.update(begins)
        return cursor, (
            {} if cursor.begun.isdisjoint(each.index for each in partitions) else self._changes([cursor])
        )

    def safe(self, cursor: Cursor, partitions: Iterable[Partition]) -> None:
        """The changes that `attach` returned for these partitions are on the disk."""
        cursor.begun.difference_update(each.index for each in partitions)

    def check_user(self, key: CursorKey, user: str | None) -> None:
        """Check that the cursor, if it exists, belongs to this user.

        Raises:
            PeerError: amqp:unauthorized-access.
        """
        found = self._cursors.get(key)
        if found is not None and found.user != user:
            whose = (
                f"consumer group {key.group[:64]!r}"
                if key.group is not None
                else "container-id and link name"
            )
            raise PeerError(names.UNAUTHORIZED_ACCESS, f"the cursor of this {whose} belongs to another user")

    def advance(self, cursor: Cursor, partition: int, position: int) -> None:
        """Move to `position`: all records below it are settled. A lower position changes nothing."""
        # Redelivery and late settlements may report a lower position.
        if position > cursor.positions[partition]:
            cursor.positions[partition] = position
            self._dirty[cursor] = None

    def reset(self, cursor: Cursor, positions: Mapping[int, int]) -> None:
        """Set positions forward or back, as requested; no link may be using the cursor."""
        self._positions += len(positions.keys() - cursor.positions.keys())
        cursor.positions.update(positions)
        self._dirty[cursor] = None

    def take_moved(self, now_ms: int) -> Changes:
        """The changes since the last call. `now_ms`: the wall clock."""
        self._now_ms = now_ms
        dirty, self._dirty = self._dirty, {}
        return self._changes(dirty)

    def remove(self, cursors: Iterable[Cursor]) -> Changes:
        """Remove these cursors."""
        # Another cursor may have the key since.
        gone = [cursor for cursor in cursors if self._cursors.pop(cursor.key, None) is cursor]
        for cursor in gone:
            self._dirty.pop(cursor, None)
            self._positions -= len(cursor.positions)
            del self._by_id[cursor.key.incarnation, cursor.id]
            of_log = self._of_log[cursor.key.incarnation]
            del of_log[cursor.key]
            if not of_log:
                del self._of_log[cursor.key.incarnation]
            if cursor.key.group is not None:
                self._counts.remove(cursor.key.incarnation, cursor.key.group, KnownBy.CURSOR)
        return dict.fromkeys(cursor.key.state for cursor in gone)

    def find(self, key: CursorKey) -> Cursor | None:
        """The cursor with this key."""
        return self._cursors.get(key)

    def by_id(self, incarnation: str, id_: str) -> Cursor | None:
        """The cursor of a log with this id."""
        return self._by_id.get((incarnation, id_))

    def of_log(self, incarnation: str) -> Sequence[Cursor]:
        """A log's cursors: its groups' by name, then its links' by container and name."""
        return sorted(self._of_log.get(incarnation, {}).values(), key=_listed)

    def uses(self) -> dict[str, Use]:
        """How much of each limit on cursors is used."""
        return {
            "cursors": Use(len(self._cursors), self._cursors_max),
            "cursor_positions": Use(self._positions, self._positions_max),
        }

    def __len__(self) -> int:
        return len(self._cursors)

    def _add(self, cursor: Cursor) -> Cursor:
        self._by_id[cursor.key.incarnation, cursor.id] = cursor
        self._positions += len(cursor.positions)
        self._cursors[cursor.key] = self._of_log.setdefault(cursor.key.incarnation, {})[cursor.key] = cursor
        if cursor.key.group is not None:
            self._counts.add(cursor.key.incarnation, cursor.key.group, KnownBy.CURSOR)
        return cursor

    def _changes(self, cursors: Iterable[Cursor]) -> Changes:
        changes: Changes = {}
        for cursor in cursors:
            self._dirty.pop(cursor, None)
            # The time of the last flush, so that writing needs no clock.
            cursor.updated_ms = self._now_ms
            changes[cursor.key.state] = encoded(cursor)
        return changes


def _listed(cursor: Cursor) -> tuple[bool, str, str, str]:
    key = cursor.key
    return key.group is None, key.group or "", key.container or "", key.link or ""


def encoded(cursor: Cursor) -> bytes:
    """The value of a cursor's state: JSON, described in docs/formats.md."""
    key = cursor.key
    whose = {"group": key.group} if key.group is not None else {"container": key.container, "link": key.link}
    positions = {str(partition): position for partition, position in sorted(cursor.positions.items())}
    return json.dumps(
        {"v": VERSION, **whose, "user": cursor.user, "at": cursor.updated_ms, "next": positions},
        separators=(",", ":"),
    ).encode()


def decoded(state: str, value: bytes) -> Cursor:
    """Decode a cursor from the key and the value of its state.

    Raises:
        StorageError: a later version wrote it.
    """
    try:
        fields = json.loads(value)
        # Not guessed: a wrong position would skip events or repeat them.
        if fields["v"] != VERSION:
            message = f"version {fields['v']!r}"
            raise ValueError(message)
        incarnation, _, _ = state.removeprefix(PREFIX).rpartition("/")
        key = CursorKey(incarnation, fields.get("group"), fields.get("container"), fields.get("link"))
        positions = {int(partition): int(position) for partition, position in fields["next"].items()}
        return Cursor(key, fields["user"], positions, fields["at"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = (
            f"state {state!r} is not a cursor that this version can read ({error}): start the version that"
            " wrote it, or a later one"
        )
        raise StorageError(message) from error
