"""The cursors of durable consumers, and the links that move them.

Spec: Event Streams 3.2; AMQP 2.6.3, 3.5.5, 3.5.6.

Laws: only an attached link moves its cursor; settlements after its end change nothing. A moved cursor is on
the disk after the next flush; when its link ends, the write begins at once.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.node.writes import Then, Writes
from amqp_streams.storage.ports import Partition, States, StoredLog, Use
from amqp_streams.streams.attach import AttachRequest, Consuming
from amqp_streams.streams.consuming.cursors import PREFIX, Cursor, CursorKey, Cursors, group_key, link_key
from amqp_streams.streams.consuming.progress import Progress
from amqp_streams.streams.consuming.reader import Run
from amqp_streams.streams.group_counts import GroupCounts

_POSITIONS_A_FLUSH: Final = 1024
"""The most positions that one part of a flush examines, in about a millisecond. A link has one position for
each of its partitions.
"""


class KeptCursors:
    """The cursors of all logs, and the links that move them."""

    def __init__(
        self,
        states: States,
        writes: Writes,
        *,
        cursors_max: int,
        positions_max: int,
        counts: GroupCounts | None = None,
    ) -> None:
        """`counts`: where groups with a cursor are counted."""
        self._writes = writes
        self._cursors = Cursors(
            states.items(PREFIX), cursors_max=cursors_max, positions_max=positions_max, counts=counts
        )
        self._followers: dict[Cursor, dict[Consuming, None]] = {}
        self._moved: dict[Consuming, None] = {}
        self._writing: dict[Consuming, None] = {}
        """Links whose cursors had moved when the flush began, and that it has not reached."""
        self._then: Then | None = None
        self._now_ms = 0
        self.on_moved: Callable[[Consuming, Mapping[int, int]], None] = lambda _consumer, _positions: None
        """Called for a link with a `number`, whose cursor is at its home."""

    @property
    def waiting(self) -> bool:
        """Whether a cursor moved that no flush has begun to write."""
        return bool(self._moved)

    @property
    def flushing(self) -> bool:
        """Whether a flush has begun and must be continued."""
        return bool(self._writing)

    # -- links

    def check(self, request: AttachRequest, log: StoredLog, group: str | None) -> None:
        """Check whether the user may use this cursor.

        Raises:
            PeerError: not, or if the link's name cannot have one.
        """
        self._cursors.check_user(_key(request, log, group), request.user)

    def open(  # noqa: PLR0917  the request, and what its first position depends on
        self,
        request: AttachRequest,
        log: StoredLog,
        group: str | None,
        partitions: Collection[Partition],
        start: Callable[[Partition], int],
        then: Then,
    ) -> tuple[Progress, bool]:
        """Open the cursor of this link or group; it is created if it does not exist.

        Returns the link's progress, and whether the first position of a partition must be written: then the
        link must not be granted before `then` is called.

        Raises:
            PeerError: the cursor belongs to another user, or a limit is reached.
        """
        key = _key(request, log, group)
        known = self._cursors.find(key)
        cursor, changes = self._cursors.attach(key, request.user, partitions, start)
        progress = Progress(cursor)
        try:
            self._begin(cursor, partitions, changes, then)
        except StorageError as error:
            # A cursor without its start on the disk must not stay in memory.
            if known is None:
                self._cursors.remove([cursor])
            raise PeerError(names.RESOURCE_LIMIT_EXCEEDED, f"the cursor cannot be stored: {error}") from error
        return progress, bool(changes)

    def widen(
        self, progress: Progress, partitions: Collection[Partition], start: Callable[[Partition], int]
    ) -> None:
        """A link with a cursor reads these partitions from now on. Does not wait for the disk."""
        cursor, changes = self._cursors.attach(progress.cursor.key, progress.cursor.user, partitions, start)
        self._begin(cursor, partitions, changes, lambda _failure, _now_ms: None)

    def _begin(
        self,
        cursor: Cursor,
        partitions: Collection[Partition],
        changes: Mapping[str, bytes | None],
        then: Then,
    ) -> None:
        def written(failure: StorageError | None, now_ms: int) -> None:
            if failure is None:
                self._cursors.safe(cursor, partitions)
            then(failure, now_ms)

        if changes:
            self._writes.write(changes, written)

    def follow(self, consumer: Consuming) -> None:
        """From now on, this link moves its cursor."""
        if consumer.progress is not None:
            self._followers.setdefault(consumer.progress.cursor, {})[consumer] = None

    def leave(self, consumer: Consuming) -> None:
        """Write the cursor of a link that has ended. It moves again when another link attaches."""
        progress = consumer.progress
        if progress is None:
            return
        # The last settlements of the link, before its progress is removed.
        self._advance(consumer)
        consumer.progress = None
        self._moved.pop(consumer, None)
        self._writing.pop(consumer, None)
        followers = self._followers.get(progress.cursor, {})
        followers.pop(consumer, None)
        if not followers:
            self._followers.pop(progress.cursor, None)
        self._write(self._cursors.take_moved(self._now_ms))

    def taken(self, consumer: Consuming, run: Run | None) -> None:
        """Record that a run was sent on this link; None: its filters skipped records."""
        progress = consumer.progress
        if progress is not None:
            if run is not None:
                progress.sent(run.partition.index, run.first, run.count)
            self._moved[consumer] = None

    def settled(self, consumer: Consuming, partition_index: int, first: int, count: int = 1) -> None:
        """Record that these records have a final outcome."""
        progress = consumer.progress
        if progress is not None:
            progress.settled(partition_index, first, count)
            self._moved[consumer] = None

    def flush(self, now_ms: int, count_max: int | None, then: Then | None = None) -> bool:
        """Begin or continue to write the moved cursors, of at most `count_max` links.

        Returns whether more remain.

        `now_ms`: the wall clock. `then`, passed at the beginning, is called when all are written. The next
        flush writes the cursors that move meanwhile.
        """
        self._now_ms = now_ms
        if not self._writing:
            self._writing, self._moved = self._moved, {}
            self._then = then
        links = positions = 0
        while self._writing and (count_max is None or (links < count_max and positions < _POSITIONS_A_FLUSH)):
            consumer = next(iter(self._writing))
            del self._writing[consumer]
            self._advance(consumer)
            links, positions = links + 1, positions + len(consumer.partitions)
        changes = self._cursors.take_moved(now_ms)
        if self._then is None or self._writing:
            self._write(changes)
        else:  # writes end in order, so this one is the last
            self._writes.write(changes, self._then)
            self._then = None
        return bool(self._writing)

    # -- what is kept

    def uses(self) -> dict[str, Use]:
        """How much of the limit on cursors is used."""
        return self._cursors.uses()

    def of_log(self, log: StoredLog) -> Sequence[Cursor]:
        """A log's cursors. `present` updates their positions."""
        return self._cursors.of_log(log.incarnation)

    def of_groups(self, log: StoredLog) -> Sequence[Cursor]:
        """The cursors of a log's consumer groups."""
        return [cursor for cursor in self._cursors.of_log(log.incarnation) if cursor.key.group is not None]

    def present(self, cursor: Cursor) -> Cursor:
        """The cursor with the current positions of its links."""
        for consumer in self._followers.get(cursor, ()):
            self._advance(consumer)
        return cursor

    def by_id(self, log: StoredLog, id_: str) -> Cursor | None:
        """The cursor of a log with this id."""
        return self._cursors.by_id(log.incarnation, id_)

    def find(self, key: CursorKey) -> Cursor | None:
        """The cursor with this key."""
        return self._cursors.find(key)

    def of_link(
        self, request: AttachRequest, logs: Iterable[StoredLog]
    ) -> Sequence[tuple[StoredLog, Cursor]]:
        """The cursors of this user under a link's name, possibly none.

        Cursors of other users are not returned.
        """
        found = []
        for log in logs:
            key = link_key(log.incarnation, request.container, request.link)
            cursor = self._cursors.find(key)
            if cursor is not None and cursor.user == request.user:
                found.append((log, cursor))
        return found

    def followers(self, cursor: Cursor) -> Collection[Consuming]:
        """The links that move the cursor: one link, or those of a group."""
        return self._followers.get(cursor, ())

    def reset(self, cursor: Cursor, positions: Mapping[int, int]) -> None:
        """Set positions as requested; no link may be using the cursor."""
        assert not self.followers(cursor), "a cursor in use must not be reset"
        self._cursors.reset(cursor, positions)
        self._write(self._cursors.take_moved(self._now_ms))

    def forget(self, incarnation: str) -> None:
        """Remove the cursors of a deleted log."""
        self.remove(self._cursors.of_log(incarnation))

    def remove(self, cursors: Collection[Cursor]) -> None:
        """Remove these cursors. Links that are attached continue without a cursor."""
        for cursor in cursors:
            for consumer in self._followers.pop(cursor, ()):
                consumer.progress = None
                self._moved.pop(consumer, None)
                self._writing.pop(consumer, None)
        self._write(self._cursors.remove(cursors))

    def _advance(self, consumer: Consuming) -> None:
        progress = consumer.progress
        if progress is not None:
            examined = consumer.reader.passed(progress.cursor.positions)
            if consumer.number is not None:
                self.on_moved(consumer, progress.advance(examined))
                return
            for partition, position in progress.moved(examined):
                self._cursors.advance(progress.cursor, partition, position)

    def _write(self, changes: Mapping[str, bytes | None]) -> None:
        if changes:
            self._writes.write(changes)


def _key(request: AttachRequest, log: StoredLog, group: str | None) -> CursorKey:
    if group:
        return group_key(log.incarnation, group)
    return link_key(log.incarnation, request.container, request.link)
