"""Attach requests and grants of links. Spec: Event Streams 4.1, 4.3, 4.6.1, 6; AMQP 2.6.3, 3.5.

A refusal is a `PeerError`; the shell answers it with a null terminus and a closing detach (design decision
11).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.storage.ports import Partition, StoredLog
from amqp_streams.streams.access import EVERYTHING, Identity, Permissions
from amqp_streams.streams.batching import Batching
from amqp_streams.streams.consuming.progress import Progress
from amqp_streams.streams.consuming.reader import Reader
from amqp_streams.streams.numbering import Numbered
from amqp_streams.streams.redirects import NOWHERE, Redirected
from amqp_streams.streams.routing import RoundRobin, partition_index
from amqp_streams.wire.types import Symbol, UInt, ULong, Value


@dataclass(frozen=True, slots=True)
class AttachRequest:
    """One attach as received.

    `consumer`: the peer receives. `address`: the node's terminus; None: a null terminus.

    `peer_address`: the peer's terminus, to which answers are sent. `dynamic`: the node must create the
    address. `durable`: the node keeps a cursor after the link has ended (durability other than none, expiry
    never; AMQP 3.5.5, 3.5.6). `user`: None: anonymous. `user_groups`: the groups in its credentials.
    `connection`: identifies the connection within the process. `no_source`: a receiver without a source,
    which asks for the source that the node keeps under its name (AMQP 2.6.3). `presettled`: deliveries are
    sent settled. `capabilities`: desired capabilities of the source (AMQP 3.5.3).
    """

    link: str
    container: str
    consumer: bool
    address: str | None
    peer_address: str | None = None
    dynamic: bool = False
    durable: bool = False
    no_source: bool = False
    presettled: bool = False
    user: str | None = None
    user_groups: frozenset[str] = frozenset()
    connection: int = 0
    properties: Mapping[str, Value] = field(default_factory=dict)
    filters: Mapping[str, Value] = field(default_factory=dict)
    capabilities: frozenset[str] = frozenset()

    @property
    def identity(self) -> Identity:
        """The identity for access rules."""
        return Identity(self.user, self.user_groups)

    @property
    def wants_info(self) -> bool:
        """Whether the link asks for the description of a log. Spec: 5.1."""
        return self.consumer and self.address is not None and self.address.endswith(names.INFO_SUFFIX)

    @property
    def member(self) -> str:
        """The member of a consumer group: links of one container are one member."""
        return self.container or f"connection-{self.connection}"


@dataclass(slots=True, eq=False)
class Producing:
    """A link that appends to one partition (bound) or any (agnostic).

    `numbered`: of an idempotent producer.
    """

    log: StoredLog
    partition: Partition | None
    round_robin: RoundRobin = field(default_factory=RoundRobin)
    elsewhere: Redirected = field(default_factory=lambda: NOWHERE)
    """Partitions that it cannot send to: another container serves them."""
    numbered: Numbered | None = None
    batch_events: int = 0
    """The most events of a batch, if the link negotiated batched sends; 0: it did not."""
    compression: str | None = None
    """The codec of its compressed batches, if the link asked for one that the node has."""
    uncompressed_bytes: int = 0
    """The most bytes of a compressed batch when it is decompressed."""
    suspended: bool = False
    """A batch was rejected, and the sender does not know it yet: see `sends.py`."""


@dataclass(slots=True, eq=False)
class Relaying:
    """A link with a null target: each message names its log in `to` (Anonymous Terminus 1.0).

    `producing`: a grant for each log that the link has sent to. The right to send is checked in `permissions`
    when a grant is added.
    """

    permissions: Permissions = EVERYTHING
    producing: dict[str, Producing] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Consuming:
    """A link that reads a log. `announce`: its next delivery carries the list of its partitions (4.6.5).

    `group`, `epoch`: its consumer group and its epoch there; the group is "" for an epoch without a group
    (4.5.2). `progress`: its progress on a cursor, if it has one. `stopped`: it gets no more events.
    `batching`: its deliveries carry many events. `number`, `may_send`: of a link of which a home decides, see
    `node/attaching/homed.py`; it gets events only while `may_send()` is true.
    """

    request: AttachRequest
    log: StoredLog
    partitions: tuple[Partition, ...]
    bound: bool
    reader: Reader
    filters: Mapping[str, Value]
    announce: bool
    group: str | None = None
    epoch: int | None = None
    progress: Progress | None = None
    stopped: bool = False
    batching: Batching | None = None
    number: int | None = None
    may_send: Callable[[], bool] | None = None

    @property
    def keeps(self) -> bool:
        """Whether the link has a cursor: the shell then reports settlements (`Node.settled`, `Node.sent`)."""
        return self.progress is not None


@dataclass(slots=True, eq=False)
class Informing:
    """A link from `<address>/$info`."""

    log: StoredLog


@dataclass(slots=True, eq=False)
class Managing:
    """A link to `$management`: carries requests."""


@dataclass(slots=True, eq=False)
class Replying:
    """A link that carries answers; its addresses identify it."""

    addresses: frozenset[str]


@dataclass(slots=True, eq=False)
class Kept:
    """A receiver without a source: the answer shows the source kept under its name; it gets no events.

    Spec: AMQP 2.6.3.

    If the peer closes it (`Node.detach` with `closed`), the cursor is removed. This is how clients end a
    durable subscription. The effect `Ended` says when the close may be answered.
    """

    request: AttachRequest
    address: str


Grant = Producing | Relaying | Consuming | Informing | Managing | Replying | Kept


@dataclass(slots=True, eq=False)
class Pending:
    """An attach that is not yet answered: it waits for the store, a partition, or its epoch on the disk.

    Spec: 4.5.1, 4.5.2.
    """

    request: AttachRequest


# -- effects: instructions of the node about links


@dataclass(frozen=True, slots=True)
class Granted:
    """Answer a pending attach."""

    pending: Pending
    grant: Consuming


@dataclass(frozen=True, slots=True)
class Decided:
    """The store has answered for a pending attach. It is granted, or waits again under another name."""

    pending: Pending
    grant: Grant | Pending


@dataclass(frozen=True, slots=True)
class Denied:
    """Refuse a pending attach."""

    pending: Pending
    error: PeerError


@dataclass(frozen=True, slots=True)
class Closed:
    """Close this link now, and send nothing more.

    The node has forgotten it; a later `detach` has no effect.
    """

    grant: Grant
    error: PeerError


@dataclass(frozen=True, slots=True)
class Ended:
    """Answer the close of this link: its cursor is removed from the disk, or with `error` perhaps not."""

    grant: Kept
    error: PeerError | None


@dataclass(frozen=True, slots=True)
class Leave:
    """Send nothing more on this link.

    Close it with `error` when everything sent is settled, or after `within_ms`.
    """

    grant: Consuming
    error: PeerError
    within_ms: int


Effect = Granted | Decided | Denied | Closed | Ended | Leave


def addressed_log(request: AttachRequest) -> str | None:
    """The name of the log that an attach is about; None if it is about none."""
    address = request.address
    if address is None or address == names.MANAGEMENT or request.dynamic:
        return None
    return address.removesuffix(names.INFO_SUFFIX) if request.wants_info else address


def refuse_receiver_properties(request: AttachRequest) -> None:
    """Refuse a sender's attach with link properties that only receivers may have.

    Raises:
        PeerError: it has one.
    """
    for name in (names.CONSUMER_GROUP, names.EPOCH):
        if name in request.properties:
            raise PeerError(
                names.INVALID_FIELD, f"link property {name} is only for receivers", {"field": "properties"}
            )


def requested_partition(request: AttachRequest, log: StoredLog) -> Partition | None:
    """The partition that the link asks to be bound to; None if it asks for none. Spec: 4.1, 4.3, 4.6.1.

    Raises:
        PeerError: it does not exist (MUST be rejected), or the property is not a symbol.
    """
    wanted = request.properties.get(names.PARTITION)
    if wanted is None:
        return None
    # A string is accepted too: its meaning is clear.
    if not isinstance(wanted, str):
        raise PeerError(
            names.INVALID_FIELD, f"link property {names.PARTITION} must be a symbol", {"field": "properties"}
        )
    return named_partition(log, wanted)


def named_partition(log: StoredLog, name: str) -> Partition:
    """The partition of `log` with this name.

    Raises:
        PeerError: the partition does not exist.
    """
    index = partition_index(name, len(log.partitions))
    if index is None:
        last = len(log.partitions) - 1
        description = (
            f"log {log.name!r} has no partition {name[:64]!r}: its partitions are 0 to {last} (see"
            f" {log.name}{names.INFO_SUFFIX})"
        )
        raise PeerError(names.NOT_FOUND, description)
    return log.partitions[index]


def answered_properties(grant: Grant) -> dict[Symbol, Value]:
    """The link properties of the answer: the bindings in force. Spec: 4.1, 4.5.2, 4.6.1 to 4.6.3."""
    match grant:
        case Producing():
            return _producing_properties(grant)
        case Consuming():
            return _consuming_properties(grant)
        case _:
            return {}


def _consuming_properties(grant: Consuming) -> dict[Symbol, Value]:
    answered: dict[str, Value] = {}
    if grant.bound:
        (partition,) = grant.partitions
        answered[names.PARTITION] = Symbol(str(partition.index))
        # An epoch without a group has the group "", which the client did not ask for.
        if grant.group:
            answered[names.CONSUMER_GROUP] = grant.group
        if grant.epoch is not None:
            answered[names.EPOCH] = ULong(grant.epoch)
    if grant.batching is not None:
        answered[names.BATCH_EVENTS] = UInt(grant.batching.events)
        answered[names.BATCH_BYTES] = ULong(grant.batching.bytes)
        if grant.batching.formats:
            answered[names.BATCH_FORMATS] = True
        if grant.batching.codec is not None:
            answered[names.BATCH_COMPRESSION] = Symbol(grant.batching.codec.name)
        answered[names.BATCH_INCARNATION] = grant.log.incarnation
    return {Symbol(name): value for name, value in answered.items()}


def _producing_properties(grant: Producing) -> dict[Symbol, Value]:
    answered: dict[str, Value] = {}
    if grant.partition is not None:
        answered[names.PARTITION] = Symbol(str(grant.partition.index))
    if grant.numbered is not None:
        answered[names.PRODUCER_ID] = grant.numbered.name
        if grant.numbered.highest is not None:
            answered[names.PRODUCER_SEQUENCE] = ULong(grant.numbered.highest)
    if grant.batch_events:
        answered[names.BATCH_EVENTS] = UInt(grant.batch_events)
    if grant.compression is not None:
        answered[names.BATCH_COMPRESSION] = Symbol(grant.compression)
        answered[names.BATCH_UNCOMPRESSED_BYTES] = ULong(grant.uncompressed_bytes)
    return {Symbol(name): value for name, value in answered.items()}
