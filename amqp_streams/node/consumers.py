"""Consumers from attach to end: claims, kept places, the grant, and how links are taken away.

Spec: Event Streams 4.3, 4.5; AMQP 2.6.1, 3.5.5.

Laws: a link in a group is granted only when its partition is its own and its epoch is on the disk; where a place begins is on the disk
before its link is granted; what a link does after its end changes nothing.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, assert_never

from amqp_streams import names
from amqp_streams.config import GroupSettings, Limits
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.filters import Compiled
from amqp_streams.node.groups import ElsewhereOf, Groups
from amqp_streams.node.links import Links
from amqp_streams.node.places import Places
from amqp_streams.node.reading import Reading, storage_refusal
from amqp_streams.node.writes import Writes
from amqp_streams.storage.ports import Partition, States, StoredLog, Use
from amqp_streams.streams.attach import AttachRequest, Closed, Consuming, Denied, Effect, Granted, Leave, Pending, requested_partition
from amqp_streams.streams.batching import Batching, requested_batching
from amqp_streams.streams.consuming.place import Place
from amqp_streams.streams.consuming.reader import Reader
from amqp_streams.streams.consuming.start import resumed_filters, resumed_position, source_filters, start_position
from amqp_streams.streams.groups.claims import requested_claim
from amqp_streams.streams.groups.ownership import Assigned, Change, Evicted, Hold, Leaving, Record, Refused
from amqp_streams.streams.redirects import Places as Elsewhere
from amqp_streams.streams.redirects import require_here

ENDING: Final = "ending/"
"""Keys of states that are this and an incarnation say that its log is being deleted: what is left of it goes at the next start."""
Steal: TypeAlias = Callable[[AttachRequest, int], None]


@dataclass(slots=True, eq=False)
class _Course:
    """One link's course from attach to end.

    `partition`: the one asked for. `reads`: how many partitions it counts for. `link`: what the shell knows it by; None within its attach.
    """

    request: AttachRequest
    log: StoredLog
    partition: Partition | None
    filters: Compiled
    batching: Batching | None = None
    reads: int = 0
    hold: Hold | None = None
    link: Pending | Consuming | None = None
    refusal: PeerError | None = None
    ended: bool = False

    @property
    def group(self) -> str | None:
        return None if self.hold is None else self.hold.group

    @property
    def bound_to(self) -> int | None:
        """The partition that it is, or is to be, bound to; None: to none, or not yet to one."""
        if self.hold is not None:
            return self.hold.partition
        return None if self.partition is None else self.partition.index


class Consumers:
    """The consumer links of a node and those that are to become some. `tell` takes effects; `steal` ends the link that has this name."""

    def __init__(
        self,
        states: States,
        settings: GroupSettings,
        limits: Limits,
        links: Links,
        *,
        elsewhere: ElsewhereOf,
        tell: Callable[[Effect], None],
        steal: Steal,
    ) -> None:
        self.writes = Writes(states)
        self._states = states
        self.groups = Groups(states, self.writes, settings, limits, elsewhere, self._changed)
        self.places = Places(states, self.writes, cursors_max=limits.cursors, positions_max=limits.cursor_positions)
        self.reading = Reading()
        self._links = links
        self._elsewhere = elsewhere
        self._tell = tell
        self._steal = steal
        self._reads = 0
        self._reads_max = limits.link_partitions
        self._courses: dict[Pending | Consuming, _Course] = {}
        self._held: dict[Hold, _Course] = {}

    def attach(self, request: AttachRequest, log: StoredLog, now_ms: int) -> Consuming | Pending:
        """Decide on a consumer's attach. Raises PeerError: refused."""
        asked = requested_partition(request, log)
        require_here(log.name, len(log.partitions), self._elsewhere(log), None if asked is None else asked.index)
        batching = requested_batching(request.capabilities, request.properties, durable=request.durable)
        course = _Course(request, log, asked, source_filters(request.filters), batching)
        claim = requested_claim(request.properties, None if asked is None else asked.index, request.member)
        if request.durable or (claim is not None and claim.group):  # who keeps no place could still take a partition away
            self.places.check(request, log, None if claim is None else claim.group)
        self._steal(request, now_ms)
        reads = len(_here(log, self._elsewhere(log))) if asked is None and claim is None else 1
        self._require_room(reads)
        if claim is None:
            self._count(course, reads)
            self._open(course, now_ms)
        else:
            course.hold, changes = self.groups.claim(log, claim, now_ms)
            self._count(course, reads)
            self._held[course.hold] = course
            self.groups.carry_out(log, changes, now_ms)
        if course.refusal is not None:
            raise course.refusal
        if course.link is None:
            self._name(course, Pending(request))
        assert course.link is not None
        return course.link

    def _require_room(self, reads: int) -> None:
        if self._reads + reads > self._reads_max:
            description = (
                f"the consumer links of this node read {self._reads} partitions, one more link with {reads} would be above the limit "
                f"'link_partitions' ({self._reads_max}): bind links to a partition, close some, or raise the limit"
            )
            raise PeerError(names.RESOURCE_LIMIT_EXCEEDED, description)

    def _count(self, course: _Course, reads: int) -> None:
        self._reads += reads - course.reads
        course.reads = reads

    def uses(self) -> dict[str, Use]:
        """What is used of the bounds, by the bound's name."""
        return self.places.uses() | {"link_partitions": Use(self._reads, self._reads_max)}

    def end(self, link: Pending | Consuming, now_ms: int, error: PeerError | None = None) -> None:
        """A link is gone, or has to go with `error`; one that is not known any more changes nothing."""
        course = self._courses.get(link)
        if course is not None:
            self._end(course, now_ms, error)

    def reassociate(self, now_ms: int) -> set[Consuming]:
        """Which partitions are here has changed: consumers of those that are not any more go, or go on with the others."""
        changed = set()
        for course in list(self._courses.values()):
            log, elsewhere = course.log, self._elsewhere(course.log)
            bound = course.bound_to
            try:
                require_here(log.name, len(log.partitions), elsewhere, bound)
            except PeerError as error:
                self._end(course, now_ms, error)
                continue
            if bound is None and isinstance(course.link, Consuming) and self._associate(course, course.link, elsewhere):
                changed.add(course.link)
        return changed

    def _associate(self, course: _Course, consumer: Consuming, elsewhere: Elsewhere) -> bool:
        """Let an agnostic link read what is here; whether that is something else than before."""
        partitions = _here(course.log, elsewhere)
        if partitions == consumer.partitions:
            return False
        start = partial(start_position, course.filters)
        if consumer.place is not None:
            self.places.widen(consumer.place, partitions, start)
        self.reading.forget(consumer)
        consumer.partitions, consumer.announce = partitions, True
        self._count(course, len(partitions))
        consumer.reader.associate(_positions(course.filters, partitions, consumer.place))
        return True

    def begin(self, incarnations: Collection[str]) -> None:
        """The process starts with logs of these incarnations: make up for a crash between the end of one and that of its groups and places.

        A log that is missing for another reason may come back from a backup, and finds its places again.
        """
        for key, _ in self._states.items(ENDING):
            incarnation = key.removeprefix(ENDING)
            if incarnation not in incarnations:
                self._forget(incarnation)
            self.writes.write({key: None})

    def ending(self, log: StoredLog) -> None:
        """A log is about to be deleted."""
        with suppress(StorageError):  # no room for a note: its places may be left over after a crash
            self.writes.write({ENDING + log.incarnation: b""})

    def forget(self, log: StoredLog, now_ms: int, error: PeerError) -> None:
        """A log is gone: its consumers go with `error`, those that wait among them, and so do its groups and places."""
        self.groups.leave(log)
        for course in [course for course in self._courses.values() if course.log.incarnation == log.incarnation]:
            self._end(course, now_ms, error)
        self._forget(log.incarnation)
        self.writes.write({ENDING + log.incarnation: None})

    def _forget(self, incarnation: str) -> None:
        self.groups.forget(incarnation)
        self.places.forget(incarnation)

    # -- towards the grant

    def _changed(self, log: StoredLog, change: Change, now_ms: int) -> None:
        """Something follows for a link from what happened in its group."""
        course = self._held.get(change.hold)
        if course is None:
            return
        match change:
            case Assigned():
                self._open(course, now_ms)
            case Evicted(error=error) | Refused(error=error):
                self._end(course, now_ms, error)
            case Leaving(error=error, within_ms=within_ms):
                if isinstance(course.link, Consuming):
                    course.link.stopped = True
                    self.reading.forget(course.link)
                    self._tell(Leave(course.link, error, within_ms))
                else:
                    self._end(course, now_ms, error)
            case Record():
                raise AssertionError(log.name)  # carried out by the groups
            case _:
                assert_never(change)

    def _open(self, course: _Course, now_ms: int) -> None:
        """The link has its partitions: find where it begins, and grant it."""
        if not course.request.durable:
            self._grant(course, None)
            return
        opened: list[Place] = []

        def safe(failure: StorageError | None, later_ms: int) -> None:
            if course.ended:
                return
            if failure is None:
                self._grant(course, opened[0])
            else:
                self._end(course, later_ms, storage_refusal(failure))

        try:
            place, wait = self.places.open(
                course.request, course.log, course.group, self._partitions(course), partial(start_position, course.filters), safe
            )
        except PeerError as error:
            self._end(course, now_ms, error)
            return
        opened.append(place)
        if not wait:
            self._grant(course, place)

    def _grant(self, course: _Course, place: Place | None) -> None:
        hold, filters, partitions = course.hold, course.filters, self._partitions(course)
        agnostic = hold is None and course.partition is None
        if place is not None and agnostic:  # other partitions may have come here while it waited
            self.places.widen(place, partitions, partial(start_position, filters))
        batching = course.batching
        read_bytes = None if batching is None else batching.bytes
        consumer = Consuming(
            course.request,
            course.log,
            partitions,
            not agnostic,
            Reader(
                _positions(filters, partitions, place),
                filters if place is None else resumed_filters(filters),
                read_bytes=read_bytes,
                held=self.reading.held,
            ),
            filters.in_force,
            announce=agnostic,
            group=course.group,
            epoch=None if hold is None else hold.epoch,
            place=place,
            batching=batching,
        )
        pending = course.link
        if isinstance(pending, Pending):
            self._links.remove(pending)
            del self._courses[pending]
            self._tell(Granted(pending, consumer))
        self._name(course, consumer)
        self.places.follow(consumer)

    def _partitions(self, course: _Course) -> tuple[Partition, ...]:
        """Those that a link is to read."""
        bound = course.bound_to
        return _here(course.log, self._elsewhere(course.log)) if bound is None else (course.log.partitions[bound],)

    def _name(self, course: _Course, link: Pending | Consuming) -> None:
        course.link = link
        self._courses[link] = course
        self._links.add(course.request, link)

    # -- towards the end

    def _end(self, course: _Course, now_ms: int, error: PeerError | None) -> None:
        """The link is no more: tell it why, if it does not know; then its partition is free for others."""
        link, course.ended = course.link, True
        self._count(course, 0)
        if link is None:
            course.refusal = error
        else:
            if error is not None:
                self._tell(Closed(link, error) if isinstance(link, Consuming) else Denied(link, error))
            del self._courses[link]
            self._links.remove(link)
        if isinstance(link, Consuming):
            link.stopped = True
            self.reading.forget(link)
            self.places.leave(link)
        if course.hold is not None:
            self._held.pop(course.hold, None)
            self.groups.release(course.log, course.hold, now_ms)


def _here(log: StoredLog, elsewhere: Elsewhere) -> tuple[Partition, ...]:
    return tuple(each for each in log.partitions if each.index not in elsewhere) if elsewhere else log.partitions


def _positions(filters: Compiled, partitions: Iterable[Partition], place: Place | None) -> list[tuple[Partition, int]]:
    """Where a reader begins in each partition."""
    if place is None:
        return [(each, start_position(filters, each)) for each in partitions]
    resumed, kept = resumed_filters(filters), place.cursor.positions
    return [(each, resumed_position(resumed, each, kept[each.index])) for each in partitions]
