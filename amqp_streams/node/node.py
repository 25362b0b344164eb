"""The node as its shell sees it: inputs one by one, and the effects that they have on links.

After `attach`, `detach`, `tick`, `state_written`, `manage` and `reassociate` the shell takes the effects and carries them out, in order.
`now_ms` of these is a clock that never goes back; where records and cursors are stamped it is the wall clock, and says so.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from amqp_streams import names
from amqp_streams.config import GroupSettings, Limits, LogSettings
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.node import reading
from amqp_streams.node.logs import LogCounters, Logs
from amqp_streams.node.permits import require_attach
from amqp_streams.node.reading import Reading
from amqp_streams.node.requests import LogRequests, Operations, carry_out
from amqp_streams.storage.ports import CommitDone, Partition, Store, StoredLog
from amqp_streams.streams import info
from amqp_streams.streams.access import EVERYTHING, Access, Identity, Permissions
from amqp_streams.streams.attach import (
    AttachRequest,
    Consuming,
    Effect,
    Grant,
    Informing,
    Managing,
    Pending,
    Producing,
    Relaying,
    Replying,
    requested_partition,
)
from amqp_streams.streams.intake import Intake, Receipt
from amqp_streams.streams.management import Answer, Request
from amqp_streams.streams.reader import Passed, Reader, Run
from amqp_streams.streams.start import source_filters, start_position

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
        limits: Limits | None = None,
        access: Access | None = None,
    ) -> None:
        self.access = access or Access()
        """Who may do what; may be replaced, which closes no link."""
        self._store = store
        self._sync = sync
        self._new_id = new_id
        self._groups = groups or GroupSettings()
        self._limits = limits or Limits()
        self._logs = Logs(store, new_id, auto_create_partitions=auto_create_partitions, partitions_max=partitions_max)
        self._links: dict[str, set[Grant]] = {}
        self._reading = Reading()
        self._intake = Intake(store, self.log)
        self._effects: list[Effect] = []
        self._types: dict[str, Operations] = {names.LOG_TYPE: LogRequests(store, self._logs, sync, lambda _log: None).operations()}

    @property
    def counters(self) -> dict[str, LogCounters]:
        """What went through each log."""
        return self._logs.counters

    # -- links

    def attach(self, request: AttachRequest, now_ms: int = 0) -> Grant | Pending:
        """Decide on an attach. `Pending` is answered later, by an effect.

        Raises:
            PeerError: refused, and why.
            StorageError: a log could not be made.
        """
        permissions = self.access.of(request.identity)
        require_attach(permissions, request)
        if request.address == names.MANAGEMENT or request.dynamic:
            return self._attach_control(request)
        if request.address is None:
            if request.consumer:
                raise PeerError(names.INVALID_FIELD, "a receiver needs a source address: the name of a log", {"field": "source"})
            return Relaying(permissions)
        if request.consumer and request.address.endswith(names.INFO_SUFFIX):
            return self._held(Informing(self.log(request.address.removesuffix(names.INFO_SUFFIX), permissions)))
        log = self.log(request.address, permissions)
        if names.CONSUMER_GROUP in request.properties or names.EPOCH in request.properties:
            raise PeerError(names.NOT_IMPLEMENTED, "this node does not serve consumer groups: attach without a group and an epoch")
        partition = requested_partition(request, log)
        if not request.consumer:
            return self._held(Producing(log, partition))
        filters = source_filters(request.filters)
        partitions = log.partitions if partition is None else (partition,)
        reader = Reader(((each, start_position(filters, each)) for each in partitions), filters)
        agnostic = partition is None
        return self._held(Consuming(request, log, partitions, not agnostic, reader, filters.in_force, announce=agnostic))

    def detach(self, link: Grant | Pending, now_ms: int = 0, *, closed: bool = False) -> None:
        """Forget a link, or an attach that is not answered yet. `closed`: its peer ended it for good, rather than losing it."""
        if isinstance(link, Producing | Consuming | Informing):
            self._links.get(link.log.name, set()).discard(link)
            if isinstance(link, Consuming):
                self._reading.forget(link)

    def tick(self, now_ms: int) -> None:
        """Time passes: waits end, partitions move."""

    def state_written(self, number: int, failure: StorageError | None, now_ms: int = 0) -> None:
        """A write of states ended (`States.on_written`)."""

    def take_effects(self) -> list[Effect]:
        """What is to be done about links since this was last called, in order."""
        effects, self._effects = self._effects, []
        return effects

    def links_of(self, name: str) -> Sequence[Grant]:
        """The links on a log."""
        return tuple(self._links.get(name, ()))

    def consumers(self) -> Iterable[Consuming]:
        """All consumer links."""
        for grants in self._links.values():
            for grant in grants:
                if isinstance(grant, Consuming):
                    yield grant

    def _attach_control(self, request: AttachRequest) -> Grant:
        if not request.consumer:
            if request.dynamic:
                raise PeerError(names.NOT_IMPLEMENTED, "targets are not made up here: name a log", {"field": "target"})
            return Managing()
        made_up = REPLY_PREFIX + self._new_id() if request.dynamic else None
        addresses = frozenset(filter(None, (made_up, request.peer_address))) or frozenset({REPLY_PREFIX + self._new_id()})
        return Replying(addresses)

    def _held(self, grant: Producing | Consuming | Informing) -> Grant:
        self._links.setdefault(grant.log.name, set()).add(grant)
        return grant

    # -- logs

    def log(self, address: str, permissions: Permissions = EVERYTHING) -> StoredLog:
        """The log at an address, made now if the node makes logs on demand and these permissions allow it. Raises PeerError: none."""
        return self._logs.at(address, permissions)

    def create(self, name: str, settings: LogSettings) -> StoredLog:
        """Make a log.

        Raises:
            PeerError: there are as many partitions as this node serves.
            ValueError: it exists.
            StorageError: the disk failed.
        """
        return self._logs.create(name, settings)

    # -- events in

    def receive(self, grant: Producing | Relaying, messages: list[bytes], now_ms: int) -> Receipt:
        """Take a batch of transfers into the next commit. `now_ms`: the wall clock. What a peer may not send is in `Receipt.refused`."""
        return self._intake.receive(grant, messages, now_ms)

    # -- events out

    def next_run(self, consumer: Consuming, count_max: int, now_ms: int | None = None) -> Run | Passed | None:
        """The next records for a consumer, or what its filters passed over; None: it has all, and is woken when there is more.

        What a link that `keeps` its place is given counts as unsettled from here on. `now_ms`: the wall clock. A `stopped` one gets None.

        Raises:
            PeerError: the records there are damaged, or the disk fails; the link has to close.
        """
        if consumer.stopped:
            return None
        return self._reading.next_run(consumer, count_max, now_ms)

    def record(self, consumer: Consuming, partition_index: int, number: int) -> Run | None:
        """One record once more, for a redelivery; None when retention has removed it, or the consumer is `stopped`.

        Raises PeerError as `next_run`.
        """
        if consumer.stopped:
            return None
        return reading.record(consumer, partition_index, number)

    def settled(self, consumer: Consuming, partition_index: int, number: int) -> None:
        """A delivery has an outcome that is not to be redelivered. Only for links that `keeps` their place; others pay nothing."""

    def sent(self, consumer: Consuming, run: Run, count: int) -> None:
        """The first `count` of a run went out settled. Only for `presettled` links that `keeps` their place."""

    def flush_cursors(self, now_ms: int) -> None:
        """Write the places that moved since the last time; `now_ms`: the wall clock."""

    def committed(self, done: CommitDone, partitions: Iterable[Partition]) -> set[Consuming]:
        """A commit came back: the consumers of its partitions that were waiting for more."""
        return self._reading.committed(done, partitions)

    def reassociate(self) -> set[Consuming]:
        """Which partitions are served here has changed: the consumers that have others now, to be pumped."""
        return set()

    # -- information and management

    def info_message(self, grant: Informing) -> bytes:
        """The answer of `<address>/$info`."""
        log = self._store.logs.get(grant.log.name, grant.log)  # its settings may have changed since the attach
        return info.value_message(info.log_info(log, self._sync))

    def manage(self, request: Request, user: str | None = None, user_groups: frozenset[str] = frozenset()) -> Answer:
        """Carry out a request to `$management` of this user (None: anonymous)."""
        permissions = self.access.of(Identity(user, user_groups))
        return carry_out(self._types, replace(request, permissions=permissions))
