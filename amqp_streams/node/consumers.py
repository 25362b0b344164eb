"""Consumers from attach to end: claims, cursors, the grant, and closing links.

Spec: Event Streams 4.3, 4.5; AMQP 2.6.1, 3.5.5.

Laws: a link in a group is granted only when it owns its partition and its epoch is on the disk. The first
position of a cursor is on the disk before its link is granted. A link that has ended changes nothing.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias, assert_never

from amqp_streams import names
from amqp_streams.config import GroupSettings, Limits
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.node.attaching.attaches import Attach, here, positions_of
from amqp_streams.node.attaching.homed import Homed, Refreshed
from amqp_streams.node.cursors import KeptCursors
from amqp_streams.node.groups import ElsewhereOf, Groups
from amqp_streams.node.links import Links
from amqp_streams.node.lookups import Lookups
from amqp_streams.node.losses import passed, require_left
from amqp_streams.node.reading import Reading, storage_refusal
from amqp_streams.node.writes import Wait, Writes
from amqp_streams.storage.ports import Partition, States, StoredLog, Use
from amqp_streams.storage.questions import Others
from amqp_streams.streams.attach import (
    AttachRequest,
    Closed,
    Consuming,
    Denied,
    Effect,
    Granted,
    Leave,
    Pending,
    requested_partition,
)
from amqp_streams.streams.batching import requested_batching
from amqp_streams.streams.consuming.progress import Progress
from amqp_streams.streams.consuming.reader import Reader
from amqp_streams.streams.consuming.start import resumed_filters, source_filters, start_position
from amqp_streams.streams.groups.claims import requested_claim
from amqp_streams.streams.groups.ownership import (
    Assigned,
    Change,
    Evicted,
    GroupLink,
    Leaving,
    Record,
    Refused,
)
from amqp_streams.streams.redirects import Redirected, require_here

ENDING: Final = "ending/"
"""A state with this prefix and an incarnation marks a log that is being deleted."""
Steal: TypeAlias = Callable[[AttachRequest, int], None]


class Consumers:
    """The consumer links of a node, and attaches that wait.

    `report` is called with each effect; `steal` ends a link of the same name. `others`: see `Store`.
    """

    def __init__(
        self,
        states: States,
        settings: GroupSettings,
        limits: Limits,
        links: Links,
        *,
        elsewhere: ElsewhereOf,
        report: Callable[[Effect], None],
        steal: Steal,
        refreshed: Refreshed,
        others: Others[Partition, StoredLog] | None = None,
    ) -> None:
        self.writes = Writes(states)
        self._states = states
        self.groups = Groups(states, self.writes, settings, limits, elsewhere, self._changed)
        self.cursors = KeptCursors(
            states,
            self.writes,
            cursors_max=limits.cursors,
            positions_max=limits.cursor_positions,
            counts=self.groups.counts,
        )
        self.reading = Reading(others=others is not None)
        self._others = others
        self.lookups = Lookups()
        self._links, self.attached = links, links.consumers_of
        self._elsewhere = elsewhere
        self._report = report
        self._steal = steal
        self._reads = 0
        self._reads_max = limits.link_partitions
        self._attaches: dict[Pending | Consuming, Attach] = {}
        self._in_groups: dict[GroupLink, Attach] = {}
        self.homed = Homed(
            self.lookups, self.cursors, self.reading, others, refreshed, report,
            self._grant, self._end, self._partitions,
        )  # fmt: skip

    def attach(self, request: AttachRequest, log: StoredLog, now_ms: int) -> Consuming | Pending:
        """Decide on a consumer's attach.

        Raises:
            PeerError: it is refused.
        """
        asked = requested_partition(request, log)
        require_here(
            log.name, len(log.partitions), self._elsewhere(log), None if asked is None else asked.index
        )
        batching = requested_batching(request.capabilities, request.properties, durable=request.durable)
        attach = Attach(request, log, asked, source_filters(request.filters), batching)
        claim = requested_claim(request.properties, None if asked is None else asked.index, request.member)
        # An attach without a cursor can also take a partition from another link, so it is checked too.
        if request.durable or (claim is not None and claim.group):
            self.cursors.check(request, log, None if claim is None else claim.group)
        # Only after the checks that may refuse the attach: a refused attach must not end the older link.
        self._steal(request, now_ms)
        reads = len(here(log, self._elsewhere(log))) if asked is None and claim is None else 1
        self._require_room(reads)
        if self.homed.takes(request, claim):
            self._count(attach, reads)
            self.homed.begin(attach, claim, now_ms)
        elif claim is None:
            self._count(attach, reads)
            self._open(attach, now_ms)
        else:
            attach.group_link, changes = self.groups.claim(log, claim, now_ms)
            self._count(attach, reads)
            # Before the changes are carried out: one of them may concern this link.
            self._in_groups[attach.group_link] = attach
            self.groups.carry_out(log, changes, now_ms)
        # The shell does not know the link yet, so its end is an exception here and not an effect.
        if attach.refusal is not None:
            raise attach.refusal
        if attach.link is None:
            self._name(attach, Pending(request))
        assert attach.link is not None
        return attach.link

    def _require_room(self, reads: int) -> None:
        if self._reads + reads > self._reads_max:
            description = (
                f"the consumer links of this node read {self._reads} partitions, and one more link with"
                f" {reads} would exceed the limit 'link_partitions' ({self._reads_max}): bind links to a"
                " partition, close some, or raise the limit"
            )
            raise PeerError(names.RESOURCE_LIMIT_EXCEEDED, description)

    def _count(self, attach: Attach, reads: int) -> None:
        self._reads += reads - attach.reads
        attach.reads = reads

    def uses(self) -> dict[str, Use]:
        """How much of each bound is used, by name."""
        return self.cursors.uses() | {"link_partitions": Use(self._reads, self._reads_max)}

    def end(self, link: Pending | Consuming, now_ms: int, error: PeerError | None = None) -> None:
        """End a link that has ended or must end with `error`. An unknown link changes nothing."""
        attach = self._attaches.get(link)
        if attach is not None:
            self._end(attach, now_ms, error)

    def reassociate(self, now_ms: int) -> set[Consuming]:
        """The redirects changed: close consumers without a partition here.

        The others read the partitions that are here.
        """
        changed = set()
        for attach in list(self._attaches.values()):
            log, elsewhere = attach.log, self._elsewhere(attach.log)
            bound = attach.bound_to
            try:
                require_here(log.name, len(log.partitions), elsewhere, bound)
            except PeerError as error:
                self._end(attach, now_ms, error)
                continue
            if (
                bound is None
                and isinstance(attach.link, Consuming)
                and self._associate(attach, attach.link, elsewhere)
            ):
                changed.add(attach.link)
        return changed

    def _associate(self, attach: Attach, consumer: Consuming, elsewhere: Redirected) -> bool:
        """Let an agnostic link read the partitions that are here; returns whether they changed."""
        partitions = here(attach.log, elsewhere)
        if partitions == consumer.partitions:
            return False
        start = partial(start_position, attach.filters, sought=attach.sought)
        # First the cursor: the positions of new partitions come from it.
        if consumer.progress is not None:
            self.cursors.widen(consumer.progress, partitions, start)
        self.reading.forget(consumer)
        consumer.partitions, consumer.announce = partitions, True
        self._count(attach, len(partitions))
        consumer.reader.associate(positions_of(attach, partitions, consumer.progress))
        return True

    def truncated(self, partition: Partition, first: int, now_ms: int) -> None:
        """Close the links that are behind the first lost record: see `Others.on_truncated`."""
        for link, error in passed(self._links.of(partition.log), partition, first):
            self._end(self._attaches[link], now_ms, error)

    def begin(self, incarnations: Collection[str]) -> None:
        """At the start, with logs of these incarnations: complete deletions that a crash interrupted.

        A log that is missing without such a mark may be restored from a backup, and then finds its cursors
        again.
        """
        for key, _ in self._states.items(ENDING):
            incarnation = key.removeprefix(ENDING)
            if incarnation not in incarnations:
                self._forget(incarnation)
            self.writes.write({key: None})

    def ending(self, log: StoredLog) -> Wait:
        """Called before a log is deleted: marks it, so that a crash does not leave its cursors behind.

        Returns the end of the write.
        """
        with suppress(StorageError):  # without space for the mark, cursors may remain after a crash
            self.writes.write({ENDING + log.incarnation: b""})
        return self.writes.settled()

    def forget(self, log: StoredLog, now_ms: int, error: PeerError) -> None:
        """End the consumers and waiting attaches of a deleted log with `error`.

        Its groups and cursors are removed.
        """
        # First: the ends of the links below must not assign partitions of a log that does not exist.
        self.groups.leave(log)
        for attach in [
            attach for attach in self._attaches.values() if attach.log.incarnation == log.incarnation
        ]:
            self._end(attach, now_ms, error)
        self._forget(log.incarnation)
        self.writes.write({ENDING + log.incarnation: None})

    def _forget(self, incarnation: str) -> None:
        self.groups.forget(incarnation)
        self.cursors.forget(incarnation)

    # -- granting

    def _changed(self, log: StoredLog, change: Change, now_ms: int) -> None:
        """Act on a change in a group for the link that it concerns."""
        # A change may concern a link that an earlier change ended.
        attach = self._in_groups.get(change.link)
        if attach is None:
            return
        match change:
            case Assigned():
                self._open(attach, now_ms)
            case Evicted(error=error) | Refused(error=error):
                self._end(attach, now_ms, error)
            case Leaving(error=error, within_ms=within_ms):
                if isinstance(attach.link, Consuming):
                    attach.link.stopped = True
                    self.reading.forget(attach.link)
                    self._report(Leave(attach.link, error, within_ms))
                else:
                    self._end(attach, now_ms, error)
            case Record():
                raise AssertionError(log.name)  # the groups handle this change themselves
            case _:
                assert_never(change)

    def _open(self, attach: Attach, now_ms: int) -> None:
        """Find the start of a link that has its partitions, and grant it."""
        try:
            if self._looks_up(attach):
                return
            if self._others is not None:
                require_left(positions_of(attach, self._partitions(attach), None), self._others.gone)
        except StorageError as error:
            self._end(attach, now_ms, storage_refusal(error))
            return
        except PeerError as error:
            self._end(attach, now_ms, error)
            return
        if not attach.request.durable:
            self._grant(attach, None)
            return
        attach.opened = self._partitions(attach)
        # `safe` needs what `open` returns, and is called later.
        opened: list[Progress] = []

        def safe(failure: StorageError | None, later_ms: int) -> None:
            # The link may have ended while the disk was busy.
            if attach.ended:
                return
            if failure is None:
                self._grant(attach, opened[0])
            else:
                self._end(attach, later_ms, storage_refusal(failure))

        try:
            progress, wait = self.cursors.open(
                attach.request,
                attach.log,
                attach.group,
                attach.opened,
                partial(start_position, attach.filters, sought=attach.sought),
                safe,
            )
        except PeerError as error:
            self._end(attach, now_ms, error)
            return
        opened.append(progress)
        if not wait:
            self._grant(attach, progress)

    def _looks_up(self, attach: Attach) -> bool:
        """Whether the store will answer later about the time of the filters, and then `_open` is called."""
        if attach.lookup is None:
            connection, after_ms = attach.request.connection, attach.filters.bounds.after_ms
            attach.lookup = self.lookups.begin(after_ms, connection, partial(self._open, attach))
        return attach.lookup is not None and attach.lookup.waits(self._partitions(attach))

    def _grant(self, attach: Attach, progress: Progress | None) -> None:
        group_link, filters, partitions = attach.group_link, attach.filters, self._partitions(attach)
        agnostic = group_link is None and attach.partition is None
        # The redirects may have changed while the attach waited, or a request has removed the cursor.
        if progress is not None and agnostic and not self._is_open(attach, progress, partitions):
            self.cursors.widen(progress, partitions, partial(start_position, filters, sought=attach.sought))
        batching = attach.batching
        read_bytes = None if batching is None else batching.bytes
        consumer = Consuming(
            attach.request,
            attach.log,
            partitions,
            not agnostic,
            Reader(
                positions_of(attach, partitions, progress),
                filters if progress is None else resumed_filters(filters),
                read_bytes=read_bytes,
                held=self.reading.held,
            ),
            filters.in_force,
            announce=agnostic,
            group=attach.group,
            epoch=None if group_link is None else group_link.epoch,
            progress=progress,
            batching=batching,
            number=attach.number,
            may_send=self.homed.permit(attach),
        )
        # The shell knows the waiting attach as a `Pending`: replace it everywhere by the link.
        pending = attach.link
        if isinstance(pending, Pending):
            self._links.remove(pending)
            del self._attaches[pending]
            self._report(Granted(pending, consumer))
        self._name(attach, consumer)
        self.cursors.follow(consumer)

    def _is_open(self, attach: Attach, progress: Progress, partitions: tuple[Partition, ...]) -> bool:
        """Whether the cursor has a position for each of these partitions."""
        return partitions == attach.opened and self.cursors.find(progress.cursor.key) is progress.cursor

    def _partitions(self, attach: Attach) -> tuple[Partition, ...]:
        """The partitions that a link will read."""
        bound = attach.bound_to
        return (
            here(attach.log, self._elsewhere(attach.log))
            if bound is None
            else (attach.log.partitions[bound],)
        )

    def _name(self, attach: Attach, link: Pending | Consuming) -> None:
        attach.link = link
        self._attaches[link] = attach
        self._links.add(attach.request, link)

    # -- ending

    def _end(self, attach: Attach, now_ms: int, error: PeerError | None) -> None:
        """End the link and notify the peer, if it does not know yet.

        Then its partition is free for other links.
        """
        # First, so that a write that ends later changes nothing: see `safe` in `_open`.
        link, attach.ended = attach.link, True
        self.lookups.cancel(attach.lookup)
        self._count(attach, 0)
        if link is None:
            attach.refusal = error
        else:
            if error is not None:
                self._report(Closed(link, error) if isinstance(link, Consuming) else Denied(link, error))
            del self._attaches[link]
            self._links.remove(link)
        # The cursor gets its last positions before the partition goes to the next link.
        if isinstance(link, Consuming):
            link.stopped = True
            self.reading.forget(link)
            self.cursors.leave(link)
        self.homed.ended(attach)
        if attach.group_link is not None:
            self._in_groups.pop(attach.group_link, None)
            self.groups.release(attach.log, attach.group_link, now_ms)
