"""Consumers in groups, with epochs or with cursors, on logs that several nodes share.

A home decides about them: decision 0026. Otherwise they are like other consumers: see `consumers.py`.

Laws: such a link is granted only when the decider grants it, and gets events only while `Decider.may_send`
allows it. The decider hears of the end of each link that it has got. A link that has ended changes nothing.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from typing import Protocol, TypeAlias

from amqp_streams import names
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.node.attaching.attaches import Attach, positions_of
from amqp_streams.node.cursors import KeptCursors
from amqp_streams.node.information.figures import Figures
from amqp_streams.node.lookups import Answering, Lookups, sought
from amqp_streams.node.losses import require_left
from amqp_streams.node.reading import Reading, storage_refusal
from amqp_streams.node.writes import Wait
from amqp_streams.storage.ports import Partition, StoredLog
from amqp_streams.storage.questions import Others
from amqp_streams.streams.attach import AttachRequest, Consuming, Effect, Leave
from amqp_streams.streams.consuming.cursors import (
    NAME_CHARACTERS_MAX,
    Cursor,
    CursorKey,
    group_key,
    link_key,
)
from amqp_streams.streams.consuming.progress import Progress
from amqp_streams.streams.consuming.start import start_position
from amqp_streams.streams.groups.claims import Claim, GroupLink, Wanted

Refreshed: TypeAlias = Callable[[StoredLog, int], Answering[None]]


class Decider(Protocol):
    """Knows the homes, and until when they allow links to send. It calls the methods of `Homed` later."""

    def attach(self, wanted: Wanted) -> int:
        """Ask the home for a link. Returns the number of the link, which is never used again.

        Raises:
            PeerError: this node cannot ask for it.
        """

    def detach(self, number: int) -> None:
        """The link has ended, in any state. An unknown one changes nothing."""

    def moved(self, consumer: Consuming, number: int, positions: Mapping[int, int]) -> None:
        """All records of this link below these positions are settled."""

    def may_send(self, number: int) -> bool:
        """Whether events may be sent on this link now. If not, the link is pumped again when they may."""


class Homed:
    """The links of which homes decide. `decider`: None: this node has no homes."""

    def __init__(  # noqa: PLR0917  what it uses of the consumers of a node
        self,
        lookups: Lookups,
        cursors: KeptCursors,
        reading: Reading,
        others: Others[Partition, StoredLog] | None,
        refreshed: Refreshed,
        report: Callable[[Effect], None],
        grant: Callable[[Attach, Progress | None], None],
        end: Callable[[Attach, int, PeerError | None], None],
        partitions: Callable[[Attach], tuple[Partition, ...]],
    ) -> None:
        self.decider: Decider | None = None
        self.figures: Callable[[int, int], Figures] | None = None
        """The figures of the groups whose homes are here, at most so many groups and partitions."""
        self._lookups = lookups
        self._reading = reading
        self._others = others
        self._refreshed = refreshed
        self._report = report
        self._grant = grant
        self._end = end
        self._partitions = partitions
        self._attaches: dict[int, Attach] = {}
        cursors.on_moved = self._moved

    @property
    def offered(self) -> bool:
        """Whether homes decide about the links of this node."""
        return self.decider is not None

    def takes(self, request: AttachRequest, claim: Claim | None) -> bool:
        """Whether a home decides about this attach."""
        return self.decider is not None and (claim is not None or request.durable)

    def consumer(self, number: int) -> Consuming | None:
        """The link with this number, if it was granted and has not ended."""
        attach = self._attaches.get(number)
        return attach.link if attach is not None and isinstance(attach.link, Consuming) else None

    def links(self) -> Iterator[tuple[str, Claim, int | None]]:
        """The claims of this node's links: the log's incarnation, and the partition that the link has."""
        for attach in self._attaches.values():
            claim, link = attach.claim, attach.group_link
            if claim is not None:
                yield attach.log.incarnation, claim, None if link is None else link.partition

    def begin(self, attach: Attach, claim: Claim | None, now_ms: int) -> None:
        """Ask the home. The attach is granted, or ended with an error, later."""
        request = attach.request
        for what, name in (("container's id", request.container), ("link's name", request.link)):
            if len(name) > NAME_CHARACTERS_MAX:
                description = f"a {what} has at most {NAME_CHARACTERS_MAX} characters here (got {len(name)})"
                raise PeerError(names.INVALID_FIELD, description)
        if request.durable and not (claim and claim.group):
            link_key("", request.container, request.link)  # it cannot have a cursor without names
        attach.claim = claim
        self._proceed(attach, self._asking(attach), now_ms)

    def permit(self, attach: Attach) -> Callable[[], bool] | None:
        """What the link asks before each write; None: no home decides about it."""
        if self.decider is None or attach.number is None:
            return None
        return partial(self.decider.may_send, attach.number)

    def ended(self, attach: Attach) -> None:
        """The link has ended."""
        steps, attach.steps = attach.steps, None
        self._lookups.forget(attach)
        if steps is not None:
            steps.close()
        if attach.number is not None and self._attaches.pop(attach.number, None) is not None:
            assert self.decider is not None
            self.decider.detach(attach.number)

    # -- from the decider

    def granted(
        self, number: int, epoch: int | None, partition: int | None, positions: Mapping[int, int], now_ms: int
    ) -> None:
        """The home has granted the link. `positions`: of its cursor."""
        attach = self._attaches.get(number)
        if attach is None:
            return
        if attach.claim is not None:
            # Only its values count: this node assigns no partitions.
            attach.group_link = GroupLink(attach.claim, now_ms, partition, epoch or 0)
        self._proceed(attach, self._opening(attach, positions), now_ms)

    def leave(self, number: int, error: PeerError, within_ms: int, now_ms: int) -> None:
        """The home gives the partition to another link when this one has settled all, or after a time."""
        attach = self._attaches.get(number)
        if attach is None:
            return
        if not isinstance(attach.link, Consuming):
            self._end(attach, now_ms, error)
            return
        attach.link.stopped = True
        self._reading.forget(attach.link)
        self._report(Leave(attach.link, error, within_ms))

    def closed(self, number: int, error: PeerError, now_ms: int) -> None:
        """The home has refused or ended the link."""
        attach = self._attaches.get(number)
        if attach is not None:
            self._end(attach, now_ms, error)

    # -- private

    def _moved(self, consumer: Consuming, positions: Mapping[int, int]) -> None:
        assert self.decider is not None
        assert consumer.number is not None
        self.decider.moved(consumer, consumer.number, positions)

    def _proceed(self, attach: Attach, steps: Generator[Wait, None, None], now_ms: int) -> None:
        """Do the next steps, up to one that waits for the store."""
        if attach.ended:
            return
        attach.steps = None
        try:
            wait = next(steps, None)
        except PeerError as error:
            self._end(attach, now_ms, error)
        except StorageError as error:
            self._end(attach, now_ms, storage_refusal(error))
        else:
            if wait is not None:
                attach.steps = steps
                wait.then(partial(self._lookups.ready, attach, partial(self._proceed, attach, steps)))

    def _asking(self, attach: Attach) -> Generator[Wait, None, None]:
        request, log, filters, claim = attach.request, attach.log, attach.filters, attach.claim
        assert self.decider is not None
        # A member without a partition may get any.
        any_of = claim is not None and claim.partition is None
        wanted = log.partitions if any_of else self._partitions(attach)
        attach.found = yield from sought(wanted, filters.bounds.after_ms, request.connection)
        starts = [0] * len(log.partitions)
        for each in wanted:
            starts[each.index] = start_position(filters, each, attach.found)
        attach.number = self.decider.attach(
            Wanted(
                log.incarnation,
                request.user,
                request.container,
                request.link,
                claim,
                request.durable,
                tuple(starts),
                () if claim is not None else tuple(each.index for each in wanted),
            )
        )
        self._attaches[attach.number] = attach

    def _opening(self, attach: Attach, positions: Mapping[int, int]) -> Generator[Wait, None, None]:
        request, log = attach.request, attach.log
        partitions = self._partitions(attach)
        # The link may have waited, and other nodes have appended: a start at the end is the end of now, and a
        # cursor that another node moved may be beyond the end that this node knows.
        if not request.durable or any(positions.get(each.index, 0) > each.end for each in partitions):
            yield from self._refreshed(log, request.connection)
        progress = None
        if request.durable:
            kept = {each.index: positions[each.index] for each in partitions}
            progress = Progress(Cursor(_key(attach), request.user, kept))
        if self._others is not None:
            require_left(positions_of(attach, partitions, progress), self._others.gone)
        self._grant(attach, progress)


def _key(attach: Attach) -> CursorKey:
    request, incarnation = attach.request, attach.log.incarnation
    if attach.group:
        return group_key(incarnation, attach.group)
    return link_key(incarnation, request.container, request.link)
