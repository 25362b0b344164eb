"""The node as its shell sees it: inputs one by one, and the effects that they have on links.

After `attach`, `detach`, `tick`, `state_written`, `manage` and `reassociate` the shell takes the effects and carries them out, in order.
`now_ms` of these is a clock that never goes back; where records and cursors are stamped it is the wall clock, and says so.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from amqp_streams import names
from amqp_streams.config import GroupSettings, Limits, LogSettings, ProducerSettings
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.node.consumers import Consumers
from amqp_streams.node.figures import Figures, group_figures
from amqp_streams.node.informed import Informed
from amqp_streams.node.links import Links
from amqp_streams.node.logs import LogCounters, Logs
from amqp_streams.node.permits import require_attach
from amqp_streams.node.place_requests import CursorRequests, GroupRequests
from amqp_streams.node.reading import record
from amqp_streams.node.requests import LogRequests, Operations, Steps, carry_out, finished
from amqp_streams.node.writes import Then
from amqp_streams.policy import Right
from amqp_streams.storage.ports import CommitDone, Formats, Partition, Store, StoredLog, Use
from amqp_streams.streams.access import EVERYTHING, Access, Identity, Permissions
from amqp_streams.streams.attach import (
    AttachRequest,
    Closed,
    Consuming,
    Effect,
    Grant,
    Informing,
    Kept,
    Managing,
    Pending,
    Producing,
    Relaying,
    Replying,
    requested_partition,
)
from amqp_streams.streams.consuming.reader import Passed, Picked, Room, Run
from amqp_streams.streams.intake import Intake, Receipt
from amqp_streams.streams.management import Answer, Request
from amqp_streams.streams.numbered_intake import NumberedIntake
from amqp_streams.streams.numbering import Numbered, Numbering, producer_id
from amqp_streams.streams.redirects import Places as Elsewhere
from amqp_streams.streams.redirects import Redirects, require_here

REPLY_PREFIX: Final = "$reply."


class Node:
    """All logs of one store, and the links on them."""

    def __init__(
        self,
        store: Store,
        *,
        sync: str,
        new_id: Callable[[], str],
        auto_create_partitions: int = 0,
        partitions_max: int = 10_000,
        groups: GroupSettings | None = None,
        producers: ProducerSettings | None = None,
        limits: Limits | None = None,
        access: Access | None = None,
        redirects: Redirects | None = None,
    ) -> None:
        self.access = access or Access()
        """Who may do what; may be replaced, which closes no link."""
        self.redirects = redirects or Redirects()
        """What another container serves; may be replaced: then `reassociate`."""
        self._store = store
        self._sync = sync
        self._new_id = new_id
        self._logs = Logs(store, new_id, auto_create_partitions=auto_create_partitions, partitions_max=partitions_max)
        self._intake = Intake(store, self.log, self._elsewhere)
        self._numbering = Numbering(limit=(limits or Limits()).producers, expiry_ms=(producers or ProducerSettings()).expiry_ms)
        self._numbered_intake = NumberedIntake(store, self._numbering)
        self._informed = Informed(sync)
        self._effects: list[Effect] = []
        self._links = Links()
        self._consumers = Consumers(
            store.states,
            groups or GroupSettings(),
            limits or Limits(),
            self._links,
            elsewhere=self._elsewhere,
            tell=self._effects.append,
            steal=self._steal,
        )
        self._consumers.begin({log.incarnation for log in store.logs.values()})
        self._now_ms, self.held = 0, self._consumers.reading.held
        kept = store.logs, self._consumers.groups, self._consumers.places
        self._types: dict[str, Operations] = {
            names.LOG_TYPE: LogRequests(store, self._logs, sync, self._consumers.ending, self._deleted, self._elsewhere).operations(),
            names.CURSOR_TYPE: CursorRequests(*kept).operations(),
            names.GROUP_TYPE: GroupRequests(*kept).operations(),
        }

    @property
    def counters(self) -> dict[str, LogCounters]:
        """What went through each log."""
        return self._logs.counters

    # -- links

    def attach(self, request: AttachRequest, now_ms: int) -> Grant | Pending:
        """Decide on an attach. `Pending` is answered later, by an effect.

        Raises:
            PeerError: refused, and why.
            StorageError: a log could not be made.
        """
        self._now_ms = now_ms
        permissions = self.access.of(request.identity)
        require_attach(permissions, request)
        log = None if request.address is None else self._addressed(request, request.address, permissions)
        if log is not None and request.consumer and not _wants_info(request):
            return self._consumers.attach(request, log, now_ms)
        grant = self._granted(request, log, permissions)
        if isinstance(grant, Producing | Kept):
            self._steal(request, now_ms)
        self._links.add(request, grant)
        return grant

    def _addressed(self, request: AttachRequest, address: str, permissions: Permissions) -> StoredLog | None:
        """The log that an address is about; None: none is."""
        if address == names.MANAGEMENT or request.dynamic:
            return None
        name = address.removesuffix(names.INFO_SUFFIX) if _wants_info(request) else address
        return self.log(name, permissions)

    def _granted(self, request: AttachRequest, log: StoredLog | None, permissions: Permissions) -> Grant:
        """What an attach gets that is about no events of a log, or sends some."""
        if request.address == names.MANAGEMENT or request.dynamic:
            return self._control(request)
        if request.consumer:
            if log is not None:
                return Informing(log)
            if request.no_source:
                return self._kept(request, permissions)
            raise PeerError(names.INVALID_FIELD, "a receiver needs a source address: the name of a log", {"field": "source"})
        if log is None:
            if names.PRODUCER_ID in request.properties:
                raise PeerError(
                    names.NOT_IMPLEMENTED, f"link property {names.PRODUCER_ID} needs a target: the name of a log", {"field": "target"}
                )
            return Relaying(permissions)
        for name in (names.CONSUMER_GROUP, names.EPOCH):
            if name in request.properties:
                raise PeerError(names.INVALID_FIELD, f"link property {name} is for receivers", {"field": "properties"})
        partition, elsewhere = requested_partition(request, log), self._elsewhere(log)
        require_here(log.name, len(log.partitions), elsewhere, None if partition is None else partition.index)
        numbered = self._numbered(request, log, partition)
        return self._intake.producing(log, partition, elsewhere, numbered)

    def _kept(self, request: AttachRequest, permissions: Permissions) -> Kept:
        """The place that is kept under the link's name, shown to a receiver without a source."""
        kept = self._consumers.places.of_link(request, self._store.logs.values())
        if not kept:
            description = f"no source is kept under the name {request.link[:64]!r} of container {request.container[:64]!r}"
            raise PeerError(names.NOT_FOUND, description)
        permissions.require(Right.RECEIVE, kept[0][0].name)
        return Kept(request, kept[0][0].name)

    def _numbered(self, request: AttachRequest, log: StoredLog, partition: Partition | None) -> Numbered | None:
        given = request.properties.get(names.PRODUCER_ID)
        if given is None:
            if names.CAPABILITY_IDEMPOTENT_PRODUCER in request.capabilities:
                description = f"an idempotent producer says who it is, in link property {names.PRODUCER_ID}"
                raise PeerError(names.INVALID_FIELD, description, {"field": "properties"})
            return None
        producer = producer_id(given)
        self._store.allow_numbers()
        return self._numbering.attach(log, producer, partition, user=request.user)

    def detach(self, link: Grant | Pending, now_ms: int, *, closed: bool = False) -> None:
        """Forget a link, or an attach that is not answered yet. `closed`: its peer ended it for good, rather than losing it."""
        self._now_ms = now_ms
        self._let_go(link)
        if isinstance(link, Consuming | Pending):
            self._consumers.end(link, now_ms)
        elif self._links.remove(link) and isinstance(link, Kept) and closed:
            kept = self._consumers.places.of_link(link.request, self._store.logs.values())
            self._consumers.places.remove([cursor for _, cursor in kept])

    def _steal(self, request: AttachRequest, now_ms: int) -> None:
        """End the link that the same user's same container has attached under the same name: it is the same link, elsewhere. AMQP 2.6.1."""
        link = self._links.rival(request)
        if link is None:
            return
        error = PeerError(names.LINK_STOLEN, f"link {request.link[:64]!r} of container {request.container[:64]!r} was attached again")
        if isinstance(link, Consuming | Pending):
            self._consumers.end(link, now_ms, error)
        else:
            self._close(link, error)

    def _let_go(self, link: Grant | Pending) -> None:
        if isinstance(link, Producing) and link.numbered is not None:
            self._numbering.detach(link.numbered)

    def _close(self, link: Grant, error: PeerError) -> None:
        self._links.remove(link)
        self._let_go(link)
        self._effects.append(Closed(link, error))

    def tick(self, now_ms: int) -> None:
        """Time passes: waits end, partitions move."""
        self._now_ms = now_ms
        self._consumers.groups.tick(now_ms)

    def state_written(self, number: int, failure: StorageError | None, now_ms: int | None = None) -> None:
        """A write of states ended (`States.on_written`)."""
        self._consumers.writes.ended(number, failure, self._now_ms if now_ms is None else now_ms)

    def take_effects(self) -> list[Effect]:
        """What is to be done about links since this was last called, in order."""
        effects = self._effects.copy()
        self._effects.clear()
        return effects

    def links_of(self, name: str) -> Sequence[Grant]:
        """The links on a log."""
        return self._links.of(name)

    def consumers(self) -> Iterable[Consuming]:
        """All consumer links."""
        return self._links.consumers()

    def _control(self, request: AttachRequest) -> Grant:
        if not request.consumer:
            if request.dynamic:
                raise PeerError(names.NOT_IMPLEMENTED, "targets are not made up here: name a log", {"field": "target"})
            return Managing()
        made_up = REPLY_PREFIX + self._new_id() if request.dynamic else None
        addresses = frozenset(filter(None, (made_up, request.peer_address))) or frozenset({REPLY_PREFIX + self._new_id()})
        return Replying(addresses)

    # -- logs

    def log(self, address: str, permissions: Permissions = EVERYTHING) -> StoredLog:
        """The log at an address, made now if the node makes logs on demand and these permissions allow it.

        Raises:
            PeerError: there is none, or another container has all of it.
        """
        place = self.redirects.whole(address) if address not in self._store.logs else None
        if place is not None:
            raise place.error(address)
        return self._logs.at(address, permissions)

    def create(self, name: str, settings: LogSettings) -> StoredLog:
        """Make a log.

        Raises:
            PeerError: there are as many partitions as this node serves.
            ValueError: it exists.
            StorageError: the disk failed.
        """
        return self._logs.create(name, settings)

    def _deleted(self, log: StoredLog) -> None:
        """A log is gone, and with it its links, its groups, and the places kept in it."""
        error = PeerError(names.RESOURCE_DELETED, f"log {log.name!r} was deleted")
        self._consumers.forget(log, self._now_ms, error)
        self._intake.forget(log)
        for link in self._links.of(log.name):
            self._close(link, error)

    # -- events in

    def receive(self, grant: Producing | Relaying, messages: list[bytes], now_ms: int, formats: Formats = None) -> Receipt:
        """Take a batch of transfers into the next commit. `now_ms`: the wall clock. What a peer may not send is in `Receipt.refused`."""
        if isinstance(grant, Producing) and grant.numbered is not None:
            receipt = self._numbered_intake.receive(grant, grant.numbered, messages, now_ms, formats)
            if receipt.settled:
                self.counters[grant.log.name].repeated += len(receipt.settled)
            return receipt
        return self._intake.receive(grant, messages, now_ms, formats)

    # -- events out

    def next_run(self, consumer: Consuming, count_max: int, now_ms: int | None = None, bytes_max: int | None = None) -> Run | Passed | None:
        """The next records for a consumer, or what its filters passed over; None: it has all, and is woken when there is more.

        What a link that `keeps` its place is given counts as unsettled from here on. `now_ms`: the wall clock. A `stopped` one gets None.
        `bytes_max`: see `Reader.take`.

        Raises:
            PeerError: the records there are damaged, or the disk fails; the link has to close.
        """
        if consumer.stopped:
            return None
        run = self._consumers.reading.next_run(consumer, count_max, now_ms, bytes_max)
        if consumer.place is not None and run is not None:
            self._consumers.places.taken(consumer, run if isinstance(run, Run) else None)
        return run

    def next_batch(self, consumer: Consuming, count_max: int, now_ms: int | None, room: Room) -> Picked | Passed | None:
        """The same for a link whose deliveries carry many events: some of one partition; see `Reader.pick`."""
        return None if consumer.stopped else self._consumers.reading.next_batch(consumer, count_max, now_ms, room)

    def record(self, consumer: Consuming, partition_index: int, number: int) -> Run | None:
        """One record once more, for a redelivery; None when retention has removed it, or the consumer is `stopped`.

        Raises PeerError as `next_run`.
        """
        if consumer.stopped:
            return None
        run = record(consumer, partition_index, number)
        if run is None:
            self._consumers.places.settled(consumer, partition_index, number)
        return run

    def settled(self, consumer: Consuming, partition_index: int, first: int, count: int = 1) -> None:
        """Deliveries of these records have outcomes after which they are not sent again.

        Only for links that `keeps` their place; after their end no more.
        """
        self._consumers.places.settled(consumer, partition_index, first, count)

    def sent(self, consumer: Consuming, run: Run, count: int) -> None:
        """The first `count` of a run went out settled. Only for `presettled` links that `keeps` their place."""
        self._consumers.places.settled(consumer, run.partition.index, run.first, count)

    def flush_cursors(self, now_ms: int, count_max: int | None = None, then: Then | None = None) -> bool:
        """Begin to write the places that have moved, or go on with it: those of `count_max` links at most; whether there are more of them.

        Takes about 20 microseconds for each link. `now_ms`: the wall clock. `then`, given when it begins (`flushing_cursors` is false), is
        called when all are written. Places that move meanwhile are for the next time (`cursors_waiting`).
        """
        return self._consumers.places.flush(now_ms, count_max, then)

    @property
    def flushing_cursors(self) -> bool:
        """Whether `flush_cursors` has begun and is to go on."""
        return self._consumers.places.flushing

    @property
    def cursors_waiting(self) -> bool:
        """Whether places moved that no `flush_cursors` has begun to write."""
        return self._consumers.places.waiting

    def committed(self, done: CommitDone, partitions: Iterable[Partition]) -> set[Consuming]:
        """A commit came back: the consumers of its partitions that were waiting for more."""
        self._numbering.committed(done)
        if done.failures:
            self._informed.forget()
        return self._consumers.reading.committed(done, partitions)

    def reassociate(self) -> set[Consuming]:
        """Which partitions are served here has changed: links go that have none left here; the consumers that have others, to be pumped."""
        for log in self._store.logs.values():
            elsewhere = self._elsewhere(log)
            for link in self._links.of(log.name):
                if isinstance(link, Producing):
                    try:
                        require_here(log.name, len(log.partitions), elsewhere, None if link.partition is None else link.partition.index)
                    except PeerError as error:
                        self._close(link, error)
                    link.elsewhere = elsewhere
        return self._consumers.reassociate(self._now_ms)

    def _elsewhere(self, log: StoredLog) -> Elsewhere:
        return self.redirects.of(log.name, len(log.partitions))

    # -- information and management

    def group_figures(self, *, groups_max: int, lags_max: int) -> Figures:
        """Figures of consumer groups: see `figures.group_figures`."""
        kept = self._store.logs.values(), self._consumers.groups, self._consumers.places
        return group_figures(*kept, groups_max=groups_max, lags_max=lags_max)

    def consumer_partitions(self) -> int:
        """The partitions of all consumer links together."""
        return sum(len(consumer.partitions) for consumer in self._links.consumers())

    def uses(self) -> dict[str, Use]:
        """What is used of the bounds on what is kept, by the bound's name."""
        return self._logs.uses() | self._consumers.uses()

    def info_message(self, grant: Informing, now_ms: int) -> bytes:
        """The answer of `<address>/$info`."""
        log = self._store.logs.get(grant.log.name, grant.log)  # its settings may have changed since the attach
        return self._informed.message(log, self._elsewhere(log), now_ms)

    def manage(self, request: Request, user: str | None = None, user_groups: frozenset[str] = frozenset()) -> Answer:
        """Carry out a request to `$management` of this user (None: anonymous), in one go."""
        return finished(self.managing(request, user, user_groups))

    def managing(self, request: Request, user: str | None = None, user_groups: frozenset[str] = frozenset()) -> Steps:
        """Begin to carry out a request to `$management` of this user; what the last step returns is the answer."""
        permissions = self.access.of(Identity(user, user_groups))
        return carry_out(self._types, replace(request, permissions=permissions))


def _wants_info(request: AttachRequest) -> bool:
    return request.consumer and request.address is not None and request.address.endswith(names.INFO_SUFFIX)
