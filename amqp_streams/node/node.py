"""The node as the shell calls it: inputs, and their effects on links.

After `attach`, `detach`, `tick`, `state_written`, `manage` and `reassociate` the shell takes the effects and
carries them out in order. `now_ms` is a monotonic clock unless a docstring says that it is the wall clock.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from amqp_streams import names
from amqp_streams.config import GroupSettings, Limits, LogSettings, ProducerSettings
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.node.arrivals import Arrivals
from amqp_streams.node.attaching.numbered import NumberedLinks, taken
from amqp_streams.node.consumers import Consumers
from amqp_streams.node.cursor_requests import CursorRequests, GroupRequests
from amqp_streams.node.information.figures import Figures, group_figures
from amqp_streams.node.information.informed import Informed
from amqp_streams.node.links import Links
from amqp_streams.node.logs import LogCounters, Logs
from amqp_streams.node.lookups import refreshed
from amqp_streams.node.permits import require_attach, require_available
from amqp_streams.node.reading import record
from amqp_streams.node.requests import LogRequests, Operations, RequestSteps, carry_out
from amqp_streams.node.subscriptions import Subscriptions
from amqp_streams.node.writes import Then
from amqp_streams.storage.ports import CommitDone, Formats, Partition, ReadRequest, Store, StoredLog, Use
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
    addressed_log,
    refuse_receiver_properties,
    requested_partition,
)
from amqp_streams.streams.consuming.reader import Later, Passed, Picked, Room, Run
from amqp_streams.streams.intake import Intake
from amqp_streams.streams.management import Answer, Request
from amqp_streams.streams.numbered_intake import NumberedIntake
from amqp_streams.streams.numbering import Numbering
from amqp_streams.streams.receipts import Receipt
from amqp_streams.streams.redirects import Redirected, Redirects, require_here
from amqp_streams.streams.sends import Sends, Taken
from amqp_streams.streams.steps import Steps, finish

REPLY_PREFIX: Final = "$reply."


class Node:
    """All logs of a store, and the links to them."""

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
        """The access rules; the shell may replace them, which closes no link."""
        self.redirects = redirects or Redirects()
        """The partitions of other containers; the shell may replace them and then calls `reassociate`."""
        self._store, self._new_id = store, new_id
        self._logs = Logs(
            store, new_id, auto_create_partitions=auto_create_partitions, partitions_max=partitions_max
        )
        self.making, self._intake = self._logs.making, Intake(store, self.log, self._elsewhere)
        self._numbering = Numbering(
            limit=(limits or Limits()).producers, expiry_ms=(producers or ProducerSettings()).expiry_ms
        )
        self._numbered = NumberedLinks(store, self._numbering)
        self._numbered_intake = NumberedIntake(store, self._numbering)
        self.sends = Sends(self._intake, self._numbered_intake, limits or Limits())
        self._informed, self.refreshed, self._links = Informed(sync), partial(refreshed, store), Links()
        self._effects: list[Effect] = []
        self._consumers = Consumers(
            store.states,
            groups or GroupSettings(),
            limits or Limits(),
            self._links,
            elsewhere=self._elsewhere,
            report=self._effects.append,
            steal=self._steal,
            refreshed=self.refreshed,
            others=store.others,
        )
        kept_here = self._consumers.cursors, self._consumers.writes
        self.subscriptions = Subscriptions(store.logs, *kept_here, self._effects.append)
        # Before the first attach: a log that is missing may have been deleted by an interrupted request.
        self._consumers.begin({log.incarnation for log in store.logs.values()})
        self._now_ms, self.lookups, self.truncated = 0, self._consumers.lookups, self._consumers.truncated
        reading, self.homed = self._consumers.reading, self._consumers.homed
        self.held, self.grown, self.woken = reading.held, reading.grown, reading.woken
        decides = self._decide, self._effects.append, self.subscriptions.looking_up, self._numbered.opening
        self._arrivals = Arrivals(store, self._logs, self.lookups, *decides)
        kept = store.logs, self._consumers.groups, *kept_here
        self.types: dict[str, Operations] = {
            names.LOG_TYPE: LogRequests(
                store, self._logs, sync, self._consumers, self._deleted, self._elsewhere
            ).operations(),
        }
        if store.others is None:
            self.types[names.CURSOR_TYPE] = CursorRequests(*kept).operations()
            self.types[names.GROUP_TYPE] = GroupRequests(*kept).operations()

    @property
    def counters(self) -> dict[str, LogCounters]:
        """The counters of each log."""
        return self._logs.counters

    # -- links

    def attach(self, request: AttachRequest, now_ms: int) -> Grant | Pending:
        """Decide on an attach. `Pending` means that an effect answers it later.

        Raises:
            PeerError: the attach is refused.
            StorageError: a log could not be created on demand.
        """
        permissions = self.access.of(request.identity)
        # Before the log is looked up: a refusal must not reveal whether the log exists.
        require_attach(permissions, request)
        require_available(request, shared=self._store.others is not None, homes=self.homed.offered)
        return self._arrivals.attach(request, permissions, now_ms)

    def _decide(self, request: AttachRequest, now_ms: int) -> Grant | Pending:
        self._now_ms = now_ms
        permissions = self.access.of(request.identity)
        require_attach(permissions, request)
        name = addressed_log(request)
        log = None if name is None else self.log(name, permissions)
        if log is not None and request.consumer and not request.wants_info:
            return self._consumers.attach(request, log, now_ms)
        # A producer or a receiver without a source ends its older link only after it was granted.
        grant = self._granted(request, log, permissions)
        if isinstance(grant, Pending):
            return grant  # it is refused when the disk has answered
        if isinstance(grant, Producing | Kept):
            self._steal(request, now_ms)
        self._links.add(request, grant)
        return grant

    def _granted(
        self, request: AttachRequest, log: StoredLog | None, permissions: Permissions
    ) -> Grant | Pending:
        """The grant of an attach that reads no events: it sends events, or is not about a log's events."""
        if request.address == names.MANAGEMENT or request.dynamic:
            return self._control(request)
        if request.consumer:
            if log is not None:
                return Informing(log)
            if request.no_source:
                return self.subscriptions.attach(request, permissions)
            raise PeerError(
                names.INVALID_FIELD,
                "a receiver needs a source address: the name of a log",
                {"field": "source"},
            )
        if log is None:
            if names.PRODUCER_ID in request.properties:
                raise PeerError(
                    names.NOT_IMPLEMENTED,
                    f"link property {names.PRODUCER_ID} needs a target: the name of a log",
                    {"field": "target"},
                )
            return Relaying(permissions)
        refuse_receiver_properties(request)
        partition, elsewhere = requested_partition(request, log), self._elsewhere(log)
        require_here(log.name, len(log.partitions), elsewhere, None if partition is None else partition.index)
        grant = self._intake.producing(log, partition, elsewhere)
        self._numbered.attached(request, grant)
        return self.sends.offered(request, grant)

    def detach(self, link: Grant | Pending, now_ms: int, *, closed: bool = False) -> None:
        """Forget a link or a waiting attach. `closed`: the peer closed it, and did not just disconnect."""
        self._now_ms = now_ms
        self._numbered.let_go(link)
        if isinstance(link, Pending) and self._arrivals.forget(link):
            return
        if isinstance(link, Consuming | Pending):
            self._consumers.end(link, now_ms)
        # Only a close by the client ends the subscription: a lost connection must not lose its cursor.
        elif self._links.remove(link) and isinstance(link, Kept) and closed:
            self.subscriptions.end(link)

    def _steal(self, request: AttachRequest, now_ms: int) -> None:
        """End the link of the same name, user and container: the new attach resumes it. AMQP 2.6.1."""
        link = self._links.rival(request)
        if link is None:
            return
        error = PeerError(
            names.LINK_STOLEN,
            f"link {request.link[:64]!r} of container {request.container[:64]!r} was attached again",
        )
        if isinstance(link, Consuming | Pending):
            self._consumers.end(link, now_ms, error)
        else:
            self._close(link, error)

    def _close(self, link: Grant, error: PeerError) -> None:
        self._links.remove(link)
        self._numbered.let_go(link)
        self._effects.append(Closed(link, error))

    def tick(self, now_ms: int) -> None:
        """Called regularly: ends waits and moves partitions."""
        self._now_ms = now_ms
        self._consumers.groups.tick(now_ms)

    def state_written(self, number: int, failure: StorageError | None, now_ms: int | None = None) -> None:
        """Process the end of a write of states (`States.on_written`)."""
        self._consumers.writes.ended(number, failure, self._now_ms if now_ms is None else now_ms)

    def take_effects(self) -> list[Effect]:
        """The effects on links since the last call, in order."""
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
                raise PeerError(
                    names.NOT_IMPLEMENTED,
                    "dynamic targets are not supported: name a log",
                    {"field": "target"},
                )
            return Managing()
        made_up = REPLY_PREFIX + self._new_id() if request.dynamic else None
        addresses = frozenset(filter(None, (made_up, request.peer_address))) or frozenset(
            {REPLY_PREFIX + self._new_id()}
        )
        return Replying(addresses)

    # -- logs

    def log(self, address: str, permissions: Permissions = EVERYTHING) -> StoredLog:
        """The log at an address, created now if that is configured and permitted, and the shell cannot wait.

        Raises:
            PeerError: it does not exist (AwaitedLogError: `making` creates it), or another container has it.
        """
        # A log that exists here is served here, even if a redirect of the whole log matches.
        container = self.redirects.whole(address) if address not in self._store.logs else None
        if container is not None:
            raise container.error(address)
        return self._logs.at(address, permissions, can_wait=self.lookups.on_answer is not None)

    def create(self, name: str, settings: LogSettings) -> StoredLog:
        """Create a log.

        Raises:
            PeerError: the node has reached its limit of partitions.
            ValueError: the log already exists.
            StorageError: the disk failed.
        """
        return self._logs.create(name, settings)

    def lost(self, log: StoredLog, reason: str, now_ms: int) -> None:
        """Close the links of a log that was deleted elsewhere (`Others.on_lost`)."""
        self._now_ms = now_ms
        self._deleted(log, reason)

    def taken(self, log: StoredLog, reason: str, *, stolen: bool, now_ms: int) -> None:
        """Close the links of a producer that is not at this node any more (`Others.on_taken`)."""
        self._now_ms = now_ms
        error = PeerError(names.LINK_STOLEN if stolen else names.LINK_DETACH_FORCED, reason)
        for link in tuple(taken(self._links.of(log.name), log.partitions)):
            self._close(link, error)

    def _deleted(self, log: StoredLog, reason: str | None = None) -> None:
        """Close the links of a deleted log, and remove its groups and cursors."""
        error = PeerError(names.RESOURCE_DELETED, reason or f"log {log.name!r} was deleted")
        # The consumers first: they still refer to the groups and cursors of the log.
        self._consumers.forget(log, self._now_ms, error)
        self._intake.forget(log)
        for link in self._links.of(log.name):
            self._close(link, error)

    # -- events in

    def receive(
        self, grant: Producing | Relaying, messages: list[bytes], now_ms: int, formats: Formats = None
    ) -> Receipt:
        """Add a batch of transfers to the next commit. `now_ms`: the wall clock. See `Receipt.refused`."""
        if isinstance(grant, Producing) and grant.numbered is not None:
            receipt = finish(self._numbered_intake.receive(grant, grant.numbered, messages, now_ms, formats))
            if receipt.settled:
                self.counters[grant.log.name].repeated += len(receipt.settled)
            return receipt
        return self._intake.receive(grant, messages, now_ms, formats)

    def receive_batch(self, grant: Producing | Relaying, message: bytes, now_ms: int) -> Steps[Taken]:
        """Add the events of one batched send to the next commit. `now_ms`: the wall clock."""
        taken = yield from self.sends.receive(grant, message, now_ms)
        if taken.receipt.settled and isinstance(grant, Producing):
            self.counters[grant.log.name].repeated += len(taken.receipt.settled)
        return taken

    # -- events out

    def next_run(
        self, consumer: Consuming, count_max: int, now_ms: int | None = None, bytes_max: int | None = None
    ) -> Run | Passed | Later | None:
        """The next records for a consumer, or a `Passed` if its filters skipped records.

        `LATER`: the reader's `asker` will be called. None if it is `stopped`, or has read all: then the next
        commit wakes it. Records of a link that `keeps` a cursor are unsettled from here on. `now_ms`: the
        wall clock. `bytes_max`: see `Reader.take`.

        Raises:
            PeerError: the records are damaged, or the disk failed; the link must be closed.
        """
        if consumer.stopped:
            return None
        run = self._consumers.reading.next_run(consumer, count_max, now_ms, bytes_max)
        if consumer.progress is not None and isinstance(run, Run | Passed):
            self._consumers.cursors.taken(consumer, run if isinstance(run, Run) else None)
        return run

    def next_batch(
        self, consumer: Consuming, count_max: int, now_ms: int | None, room: Room
    ) -> Picked | Passed | Later | None:
        """Like `next_run`, for batched deliveries: records of one partition (see `Reader.pick`)."""
        reading = self._consumers.reading
        return None if consumer.stopped else reading.next_batch(consumer, count_max, now_ms, room)

    def record(
        self, consumer: Consuming, partition_index: int, number: int, request: ReadRequest | None = None
    ) -> Run | Later | None:
        """A record for redelivery; None: removed, or the consumer is `stopped`. Raises PeerError."""
        if consumer.stopped:
            return None
        run = record(consumer, partition_index, number, request)
        # Retention removed the record: nothing can be settled any more, so the cursor must not wait for it.
        if run is None:
            self._consumers.cursors.settled(consumer, partition_index, number)
        return run

    def settled(self, consumer: Consuming, partition_index: int, first: int, count: int = 1) -> None:
        """Record final outcomes. Only for links that `keeps` a cursor, before their end."""
        self._consumers.cursors.settled(consumer, partition_index, first, count)

    def sent(self, consumer: Consuming, run: Run, count: int) -> None:
        """`count` records of a run were sent settled. Only for `presettled` links that `keeps` a cursor."""
        self._consumers.cursors.settled(consumer, run.partition.index, run.first, count)

    def flush_cursors(self, now_ms: int, count_max: int | None = None, then: Then | None = None) -> bool:
        """Begin or continue to write moved cursors, of at most `count_max` links; returns if more remain.

        Takes about 20 microseconds for each link. `now_ms`: the wall clock. `then`, passed at the beginning
        (`flushing_cursors` is false), is called when all are written. Later moves wait for the next flush.
        """
        return self._consumers.cursors.flush(now_ms, count_max, then)

    @property
    def flushing_cursors(self) -> bool:
        """Whether a `flush_cursors` has begun and must be continued."""
        return self._consumers.cursors.flushing

    @property
    def cursors_waiting(self) -> bool:
        """Whether cursors moved that no `flush_cursors` has begun to write."""
        return self._consumers.cursors.waiting

    def committed(self, done: CommitDone, partitions: Iterable[Partition]) -> Iterator[Consuming]:
        """A commit with records of these partitions has ended. See `Reading.grown`."""
        self._numbering.committed(done)
        if done.failures:
            # The cache compares starts and ends, which a failure does not change.
            self._informed.forget()
        return self._consumers.reading.committed(done, partitions)

    def reassociate(self) -> set[Consuming]:
        """The redirects changed: close links without a partition here, return the consumers to pump."""
        for log in self._store.logs.values():
            elsewhere = self._elsewhere(log)
            for link in self._links.of(log.name):
                if isinstance(link, Producing):
                    bound = None if link.partition is None else link.partition.index
                    try:
                        require_here(log.name, len(log.partitions), elsewhere, bound)
                    except PeerError as error:
                        self._close(link, error)
                    link.elsewhere = elsewhere
        return self._consumers.reassociate(self._now_ms)

    def _elsewhere(self, log: StoredLog) -> Redirected:
        return self.redirects.of(log.name, len(log.partitions))

    # -- information and management

    def group_figures(self, *, groups_max: int, lags_max: int) -> Figures:
        """The figures of consumer groups: see `figures.group_figures`."""
        if self.homed.figures is not None:
            return self.homed.figures(groups_max, lags_max)
        kept = self._store.logs.values(), self._consumers.groups, self._consumers.cursors
        return group_figures(*kept, groups_max=groups_max, lags_max=lags_max)

    def consumer_partitions(self) -> int:
        """The number of partitions that all consumer links read."""
        return sum(len(consumer.partitions) for consumer in self._links.consumers())

    def uses(self) -> dict[str, Use]:
        """How much of each bound is used, by name."""
        return self._logs.uses() | self._consumers.uses()

    def info_message(self, grant: Informing, now_ms: int) -> Steps[bytes]:
        """The answer of `<address>/$info`. Raises StorageError: the disk failed."""
        # The settings may have changed since the attach.
        log = self._store.logs.get(grant.log.name, grant.log)
        return self._informed.message(log, self._elsewhere(log), now_ms)

    def manage(
        self, request: Request, user: str | None = None, user_groups: frozenset[str] = frozenset()
    ) -> Answer:
        """Carry out a request to `$management` of this user (None: anonymous) at once."""
        return finish(self.managing(request, user, user_groups))

    def managing(
        self, request: Request, user: str | None = None, user_groups: frozenset[str] = frozenset()
    ) -> RequestSteps:
        """Begin a request to `$management` of this user; the last step returns the answer."""
        permissions = self.access.of(Identity(user, user_groups))
        return carry_out(self.types, replace(request, permissions=permissions))
