"""The places that the node keeps for durable consumers, and the links that move them. Spec: Event Streams 3.2; AMQP 2.6.3, 3.5.5, 3.5.6.

Laws: only a link that is there moves its place, and what it settles after its end changes nothing; what moved is on the disk after the
next flush, or on its way there when the link ends.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.node.writes import Then, Writes
from amqp_streams.storage.ports import Partition, States, StoredLog, Use
from amqp_streams.streams.attach import AttachRequest, Consuming
from amqp_streams.streams.consuming.cursors import PREFIX, Cursor, CursorKey, Cursors, group_key, link_key
from amqp_streams.streams.consuming.place import Place
from amqp_streams.streams.consuming.reader import Run

_POSITIONS_A_FLUSH: Final = 4096
"""Positions of links that a flush in parts looks at in one part: a link has one for each of its partitions."""


class Places:
    """The cursors of all logs, and who is moving them."""

    def __init__(self, states: States, writes: Writes, *, cursors_max: int, positions_max: int) -> None:
        self._writes = writes
        self._cursors = Cursors(states.items(PREFIX), cursors_max=cursors_max, positions_max=positions_max)
        self._followers: dict[Cursor, set[Consuming]] = {}
        self._moved: set[Consuming] = set()
        self._writing: set[Consuming] = set()
        """Of those that had moved when a flush began, the ones that it has not come to."""
        self._then: Then | None = None
        self._now_ms = 0

    @property
    def waiting(self) -> bool:
        """Whether something moved that no flush has begun to write."""
        return bool(self._moved)

    @property
    def flushing(self) -> bool:
        """Whether a flush has begun that is to go on."""
        return bool(self._writing)

    # -- links

    def check(self, request: AttachRequest, log: StoredLog, group: str | None) -> None:
        """See whether this user may have this place. Raises PeerError: it may not, or the link has no name to keep a place under."""
        self._cursors.check_user(_key(request, log, group), request.user)

    def open(  # noqa: PLR0917  an attach has many sides
        self,
        request: AttachRequest,
        log: StoredLog,
        group: str | None,
        partitions: Collection[Partition],
        start: Callable[[Partition], int],
        then: Then,
    ) -> tuple[Place, bool]:
        """A hold on the place of this link or group, made if there is none; whether `then` is to be waited for, when what is new is safe.

        Raises:
            PeerError: it is another user's, or no more can be kept.
        """
        key = _key(request, log, group)
        known = self._cursors.find(key)
        cursor, changes = self._cursors.attach(key, request.user, partitions, start)
        place = Place(cursor)
        place.follow(each.index for each in partitions)
        try:
            self._begin(cursor, partitions, changes, then)
        except StorageError as error:
            if known is None:
                self._cursors.remove([cursor])
            raise PeerError(names.RESOURCE_LIMIT_EXCEEDED, f"no more places can be kept: {error}") from error
        return place, bool(changes)

    def widen(self, place: Place, partitions: Collection[Partition], start: Callable[[Partition], int]) -> None:
        """A link that has a place reads these partitions from now on; nobody waits for the disk."""
        cursor, changes = self._cursors.attach(place.cursor.key, place.cursor.user, partitions, start)
        place.follow(each.index for each in partitions)
        self._begin(cursor, partitions, changes, lambda _failure, _now_ms: None)

    def _begin(self, cursor: Cursor, partitions: Collection[Partition], changes: Mapping[str, bytes | None], then: Then) -> None:
        def written(failure: StorageError | None, now_ms: int) -> None:
            if failure is None:
                self._cursors.safe(cursor, partitions)
            then(failure, now_ms)

        if changes:
            self._writes.write(changes, written)

    def follow(self, consumer: Consuming) -> None:
        """This link moves its place from now on."""
        if consumer.place is not None:
            self._followers.setdefault(consumer.place.cursor, set()).add(consumer)

    def leave(self, consumer: Consuming) -> None:
        """The link is gone: its place is where it left it, and nobody moves it until the next comes."""
        place = consumer.place
        if place is None:
            return
        self._advance(consumer)
        consumer.place = None
        self._moved.discard(consumer)
        self._writing.discard(consumer)
        followers = self._followers.get(place.cursor, set())
        followers.discard(consumer)
        if not followers:
            self._followers.pop(place.cursor, None)
        self._write(self._cursors.take_moved(self._now_ms))

    def taken(self, consumer: Consuming, run: Run | None) -> None:
        """A link was given a run, or None: its filters passed over some."""
        place = consumer.place
        if place is not None:
            if run is not None:
                place.trackers[run.partition.index].sent(run.first, run.count)
            self._moved.add(consumer)

    def settled(self, consumer: Consuming, partition_index: int, first: int, count: int = 1) -> None:
        """These records are done with."""
        place = consumer.place
        if place is not None:
            place.trackers[partition_index].settled(first, count)
            self._moved.add(consumer)

    def flush(self, now_ms: int, count_max: int | None, then: Then | None = None) -> bool:
        """Begin to write what moved, or go on with it: of so many links at most; whether there is more of it.

        `now_ms`: the wall clock. `then`, given when it begins, is called when all of it is written. What moves meanwhile waits.
        """
        self._now_ms = now_ms
        if not self._writing:
            self._writing, self._moved = self._moved, set()
            self._then = then
        links = positions = 0
        while self._writing and (count_max is None or (links < count_max and positions < _POSITIONS_A_FLUSH)):
            consumer = self._writing.pop()
            self._advance(consumer)
            links, positions = links + 1, positions + len(consumer.partitions)
        changes = self._cursors.take_moved(now_ms)
        if self._then is None or self._writing:
            self._write(changes)
        else:  # writes end in their order: this one is the last
            self._writes.write(changes, self._then)
            self._then = None
        return bool(self._writing)

    # -- what is kept

    def uses(self) -> dict[str, Use]:
        """What is used of the limit on cursors."""
        return self._cursors.uses()

    def of_log(self, log: StoredLog) -> Sequence[Cursor]:
        """A log's cursors. Where they are this moment, `present` says."""
        return self._cursors.of_log(log.incarnation)

    def of_groups(self, log: StoredLog) -> Sequence[Cursor]:
        """Those of a log's consumer groups alone."""
        return [cursor for cursor in self._cursors.of_log(log.incarnation) if cursor.key.group is not None]

    def present(self, cursor: Cursor) -> Cursor:
        """The cursor, brought to where its links are this moment."""
        for consumer in self._followers.get(cursor, ()):
            self._advance(consumer)
        return cursor

    def by_id(self, log: StoredLog, id_: str) -> Cursor | None:
        """The cursor of this id in a log."""
        return self._cursors.by_id(log.incarnation, id_)

    def find(self, key: CursorKey) -> Cursor | None:
        """The cursor of this key."""
        return self._cursors.find(key)

    def of_link(self, request: AttachRequest, logs: Iterable[StoredLog]) -> Sequence[tuple[StoredLog, Cursor]]:
        """What this user keeps under a link's name; may be nothing. What others keep under it is as if it were not there."""
        found = []
        for log in logs:
            key = link_key(log.incarnation, request.container, request.link)
            cursor = self._cursors.find(key)
            if cursor is not None and cursor.user == request.user:
                found.append((log, cursor))
        return found

    def followers(self, cursor: Cursor) -> Collection[Consuming]:
        """The links that are moving it: one, or those of a group."""
        return self._followers.get(cursor, ())

    def reset(self, cursor: Cursor, positions: Mapping[int, int]) -> None:
        """Move it on the caller's word; no link follows it."""
        assert not self.followers(cursor), "a place in use is not moved by hand"
        self._cursors.reset(cursor, positions)
        self._write(self._cursors.take_moved(self._now_ms))

    def forget(self, incarnation: str) -> None:
        """Of a log that is gone: its places go."""
        self.remove(self._cursors.of_log(incarnation))

    def remove(self, cursors: Collection[Cursor]) -> None:
        """Forget these; what links do to them from now on changes nothing."""
        for cursor in cursors:
            for consumer in self._followers.pop(cursor, ()):
                consumer.place = None
                self._moved.discard(consumer)
                self._writing.discard(consumer)
        self._write(self._cursors.remove(cursors))

    def _advance(self, consumer: Consuming) -> None:
        place = consumer.place
        if place is not None:
            for partition, position in place.positions(consumer.reader.positions):
                self._cursors.advance(place.cursor, partition, position)

    def _write(self, changes: Mapping[str, bytes | None]) -> None:
        if changes:
            self._writes.write(changes)


def _key(request: AttachRequest, log: StoredLog, group: str | None) -> CursorKey:
    if group:
        return group_key(log.incarnation, group)
    return link_key(log.incarnation, request.container, request.link)
