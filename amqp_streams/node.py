"""The event log node: what links may attach, where events go, who reads what. Composes `streams/` over a `Store`.

Pure: no sockets, clock, Proton. Time and random ids are arguments. The shell (`server/`) hands in batches and carries out what comes
back; it keeps the deliveries that wait for a commit, the node keeps none.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from amqp_streams import names
from amqp_streams.config import LOG_NAME, LogSettings
from amqp_streams.errors import DiskFullError, PeerError, StorageError
from amqp_streams.storage.ports import CommitDone, Partition, Store, StoredLog
from amqp_streams.streams import info, management
from amqp_streams.streams.attach import (
    AttachRequest,
    Consuming,
    Grant,
    Informing,
    Managing,
    Producing,
    Relaying,
    Replying,
    requested_partition,
)
from amqp_streams.streams.intake import Intake, Receipt
from amqp_streams.streams.management import Answer, Request, RequestError
from amqp_streams.streams.reader import Passed, Reader, Run
from amqp_streams.streams.start import source_filters, start_position
from amqp_streams.wire.offsets import offset_text
from amqp_streams.wire.types import Value

REPLY_PREFIX: Final = "$reply."


@dataclass(slots=True)
class LogCounters:
    """Events and bytes of one log since the process started."""

    events_in: int = 0
    bytes_in: int = 0
    events_out: int = 0
    bytes_out: int = 0


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
    ) -> None:
        self._store = store
        self._sync = sync
        self._new_id = new_id
        self._auto_create_partitions = auto_create_partitions
        self._partitions_max = partitions_max
        self.counters: dict[str, LogCounters] = {name: LogCounters() for name in store.logs}
        self._links: dict[str, set[Grant]] = {}
        self._waiting: dict[Partition, set[Consuming]] = {}
        self._intake = Intake(store, self.log)
        self._operations: dict[str, Callable[[Request], Answer]] = {
            "CREATE": self._manage_create,
            "READ": self._manage_read,
            "QUERY": self._manage_query,
            "UPDATE": self._manage_update,
            "DELETE": self._manage_delete,
        }

    # -- links

    def attach(self, request: AttachRequest) -> Grant:
        """Decide on an attach.

        Raises:
            PeerError: refused, and why.
        """
        if request.address == names.MANAGEMENT or request.dynamic:
            return self._attach_control(request)
        if request.address is None:
            if request.consumer:
                raise PeerError(names.INVALID_FIELD, "a receiver needs a source address: the name of a log", {"field": "source"})
            return Relaying()
        if request.consumer and request.address.endswith(names.INFO_SUFFIX):
            return self._held(Informing(self.log(request.address.removesuffix(names.INFO_SUFFIX))))
        log = self.log(request.address)
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

    def detach(self, grant: Grant) -> None:
        """Forget a link."""
        if isinstance(grant, Producing | Consuming | Informing):
            self._links.get(grant.log.name, set()).discard(grant)
            if isinstance(grant, Consuming):
                for partition in grant.partitions:
                    self._waiting.get(partition, set()).discard(grant)

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

    def log(self, address: str) -> StoredLog:
        """The log at an address, made now if the node makes logs on demand. Raises PeerError: there is none."""
        log = self._store.logs.get(address)
        if log is not None:
            return log
        if self._auto_create_partitions and LOG_NAME.fullmatch(address):
            return self.create(address, LogSettings(partitions=self._auto_create_partitions))
        shown = address[:128]
        raise PeerError(names.NOT_FOUND, f"there is no log {shown!r}: amqp-streams log create {shown} --partitions 4")

    def create(self, name: str, settings: LogSettings) -> StoredLog:
        """Make a log.

        Raises:
            PeerError: there are as many partitions as this node serves.
            ValueError: it exists.
            StorageError: the disk failed.
        """
        if sum(len(log.partitions) for log in self._store.logs.values()) + settings.partitions > self._partitions_max:
            description = f"this node serves {self._partitions_max} partitions in all: delete a log, or raise its limit 'partitions'"
            raise PeerError(names.RESOURCE_LIMIT_EXCEEDED, description)
        log = self._store.create(name, settings, incarnation=self._new_id())
        self.counters[name] = LogCounters()
        return log

    # -- events in

    def receive(self, grant: Producing | Relaying, messages: list[bytes], now_ms: int) -> Receipt:
        """Take a batch of transfers into the next commit. Never raises for what a peer sent: see `Receipt.refused`."""
        return self._intake.receive(grant, messages, now_ms)

    # -- events out

    def next_run(self, consumer: Consuming, count_max: int, now_ms: int | None = None) -> Run | Passed | None:
        """The next records for a consumer, or what its filters passed over; None: it has all, and is woken when there is more.

        Raises:
            PeerError: the records there are damaged, or the disk fails; the link has to close.
        """
        try:
            run = consumer.reader.take(count_max, now_ms)
        except StorageError as error:
            raise storage_refusal(error) from error
        if run is None:
            for partition in consumer.partitions:
                self._waiting.setdefault(partition, set()).add(consumer)
        return run

    def record(self, consumer: Consuming, partition_index: int, number: int) -> Run | None:
        """One record once more, for a redelivery; None when retention has removed it. Raises PeerError as `next_run`."""
        partition = consumer.log.partitions[partition_index]
        try:
            chunk = partition.read(number, 1)
        except StorageError as error:
            raise storage_refusal(error) from error
        if chunk is None or not chunk.base <= number < chunk.base + len(chunk):
            return None
        return Run(partition, chunk, number - chunk.base, 1, 0)

    def committed(self, done: CommitDone, partitions: Iterable[Partition]) -> set[Consuming]:
        """A commit came back: the consumers of its partitions that were waiting for more."""
        woken: set[Consuming] = set()
        for partition in partitions:
            if partition in done.failures:
                continue
            waiting = self._waiting.pop(partition, None)
            if waiting:
                for consumer in waiting:
                    consumer.reader.wake(partition)
                woken |= waiting
        return woken

    # -- information and management

    def info_message(self, grant: Informing) -> bytes:
        """The answer of `<address>/$info`."""
        log = self._store.logs.get(grant.log.name, grant.log)  # its settings may have changed since the attach
        return info.value_message(info.log_info(log, self._sync))

    def manage(self, request: Request) -> Answer:
        """Carry out a request to `$management`."""
        operation = self._operations.get(request.operation)
        try:
            if request.type not in ("", names.LOG_TYPE):
                raise RequestError(management.NOT_IMPLEMENTED, f"type {request.type[:64]!r} is unknown: {names.LOG_TYPE!r}")
            if operation is None:
                description = f"operation {request.operation[:64]!r} is unknown: {', '.join(self._operations)}"
                raise RequestError(management.NOT_IMPLEMENTED, description)
            return operation(request)
        except RequestError as error:
            return error.answer
        except PeerError as error:
            return Answer(management.FORBIDDEN, error.description)
        except StorageError as error:
            return Answer(management.SERVER_ERROR, str(error))

    def _manage_read(self, request: Request) -> Answer:
        return Answer(management.OK, "OK", self._described(self._managed(request)))

    def _manage_query(self, _request: Request) -> Answer:
        logs: list[Value] = [self._described(log) for _, log in sorted(self._store.logs.items())]
        return Answer(management.OK, "OK", {"logs": logs})

    def _manage_delete(self, request: Request) -> Answer:
        name = self._managed(request).name
        self._store.delete(name)
        self.counters.pop(name, None)
        return Answer(management.NO_CONTENT, "deleted", {})

    def _manage_create(self, request: Request) -> Answer:
        name = management.requested_name(request)
        settings = management.requested_settings(request, LogSettings())
        if name in self._store.logs:
            raise RequestError(management.CONFLICT, f"log {name!r} exists already")
        return Answer(management.CREATED, "created", self._described(self.create(name, settings)))

    def _manage_update(self, request: Request) -> Answer:
        log = self._managed(request)
        settings = management.requested_settings(request, log.settings)
        if settings.partitions != log.settings.partitions:
            raise RequestError(management.BAD_REQUEST, "the number of partitions of a log is fixed when it is created")
        return Answer(management.OK, "updated", self._described(self._store.update(log.name, settings)))

    def _managed(self, request: Request) -> StoredLog:
        name = management.requested_name(request)
        log = self._store.logs.get(name)
        if log is None:
            raise RequestError(management.NOT_FOUND, f"there is no log {name!r}")
        return log

    def _described(self, log: StoredLog) -> dict[Value, Value]:
        return {"name": log.name, **management.described_settings(log.settings), **info.log_info(log, self._sync)}


def storage_refusal(error: StorageError) -> PeerError:
    """What a peer is told of a failure of ours."""
    if isinstance(error, DiskFullError):
        return PeerError(names.RESOURCE_LIMIT_EXCEEDED, str(error))
    return PeerError(names.INTERNAL_ERROR, str(error))


def skipped_text(run: Run) -> str:
    """For the log line when retention overtook a reader."""
    return f"{run.skipped} events before offset {offset_text(run.first)} of partition {run.partition.index} were removed by retention"
