"""What a peer asks for when it attaches a link, and what it is granted. Spec: Event Streams 4.1, 4.3, 4.6.1, 6; AMQP 2.6.3, 3.5.

A refusal is a `PeerError`; the shell answers it with a null terminus and a closing detach (design decision 11).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.storage.ports import Partition, StoredLog
from amqp_streams.streams.access import EVERYTHING, Identity, Permissions
from amqp_streams.streams.batching import Batching
from amqp_streams.streams.consuming.place import Place
from amqp_streams.streams.consuming.reader import Reader
from amqp_streams.streams.numbering import Numbered
from amqp_streams.streams.redirects import NOWHERE, Places
from amqp_streams.streams.routing import RoundRobin, partition_index
from amqp_streams.wire.types import Symbol, UInt, ULong, Value


@dataclass(frozen=True, slots=True)
class AttachRequest:
    """One attach as it came. `consumer`: the peer receives. `address`: of the terminus at this node; None for a null terminus.

    `peer_address`: of the terminus at the peer, where answers to requests are sent. `dynamic`: the node is to make the address up.
    `durable`: the source is to keep its place when the link is gone (durability other than none, expiry never; AMQP 3.5.5, 3.5.6).
    `user`: who logged in; None: anonymous; `user_groups`: the groups that its credentials name. `connection` tells connections of the
    process apart. `no_source`: the peer attached a receiver without a source, which asks for what is kept under its name (AMQP 2.6.3).
    `presettled`: what is sent counts as settled. `capabilities`: what the source is wanted to be capable of (AMQP 3.5.3).
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
        """Whom rules are about."""
        return Identity(self.user, self.user_groups)

    @property
    def member(self) -> str:
        """Whose link it is within a consumer group: links of one container are one member."""
        return self.container or f"connection-{self.connection}"


@dataclass(slots=True, eq=False)
class Producing:
    """A link that appends to a log: to one partition (bound), or to any (agnostic). `numbered`: its producer numbers the events."""

    log: StoredLog
    partition: Partition | None
    round_robin: RoundRobin = field(default_factory=RoundRobin)
    elsewhere: Places = field(default_factory=lambda: NOWHERE)
    """Partitions that it may not send to, because another container serves them."""
    numbered: Numbered | None = None


@dataclass(slots=True, eq=False)
class Relaying:
    """A link with a null target: each message names its log in `to` (Anonymous Terminus 1.0). One router for each log.

    A log that is among the routers is one that the peer may send to: `permissions` are asked once for each.
    """

    permissions: Permissions = EVERYTHING
    producing: dict[str, Producing] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Consuming:
    """A link that reads a log. `announce`: its next delivery tells the partitions that it is associated with (4.6.5).

    `group`, `epoch`: its consumer group and what the epoch of its partition there is; the group is "" for an epoch without one (4.5.2).
    `place`: what it keeps beyond its end, None mostly. `stopped`: it gets nothing more. `batching`: its deliveries carry many events.
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
    place: Place | None = None
    stopped: bool = False
    batching: Batching | None = None

    @property
    def keeps(self) -> bool:
        """Its place is kept, so the node is to be told what is settled (`Node.settled`, `Node.sent`)."""
        return self.place is not None


@dataclass(slots=True, eq=False)
class Informing:
    """A link from `<address>/$info`."""

    log: StoredLog


@dataclass(slots=True, eq=False)
class Managing:
    """A link to `$management`: carries requests."""


@dataclass(slots=True, eq=False)
class Replying:
    """A link that answers travel on, found by any of its addresses."""

    addresses: frozenset[str]


@dataclass(slots=True, eq=False)
class Kept:
    """A receiver attached without a source: it is told which source is kept under its name, and gets no events. Spec: AMQP 2.6.3.

    When its peer closes it (`Node.detach` with `closed`), what is kept is removed: so clients end a durable subscription.
    """

    request: AttachRequest
    address: str


Grant = Producing | Relaying | Consuming | Informing | Managing | Replying | Kept


@dataclass(slots=True, eq=False)
class Pending:
    """An attach neither granted nor refused yet: it waits for a partition, or until its epoch is on the disk. Spec: 4.5.1, 4.5.2."""

    request: AttachRequest


# -- effects: what the node wants done about links, told after any of its inputs


@dataclass(frozen=True, slots=True)
class Granted:
    """Answer a pending attach."""

    pending: Pending
    grant: Consuming


@dataclass(frozen=True, slots=True)
class Denied:
    """Refuse a pending attach."""

    pending: Pending
    error: PeerError


@dataclass(frozen=True, slots=True)
class Closed:
    """Close this link now: it gets nothing more. The node has forgotten it; no `detach` is expected (one does no harm)."""

    grant: Grant
    error: PeerError


@dataclass(frozen=True, slots=True)
class Leave:
    """Send nothing more on this link, and close it with `error` when all that was sent is settled, after `within_ms` at the latest."""

    grant: Consuming
    error: PeerError
    within_ms: int


Effect = Granted | Denied | Closed | Leave


def requested_partition(request: AttachRequest, log: StoredLog) -> Partition | None:
    """The partition that the link asks to be bound to; None if it asks for none. Spec: 4.1, 4.3, 4.6.1.

    Raises:
        PeerError: it does not exist (MUST be rejected), or the property is not a symbol.
    """
    wanted = request.properties.get(names.PARTITION)
    if wanted is None:
        return None
    if not isinstance(wanted, str):
        raise PeerError(names.INVALID_FIELD, f"link property {names.PARTITION} is a symbol", {"field": "properties"})
    return named_partition(log, wanted)


def named_partition(log: StoredLog, name: str) -> Partition:
    """The partition of `log` that peers call `name`.

    Raises:
        PeerError: there is none.
    """
    index = partition_index(name, len(log.partitions))
    if index is None:
        last = len(log.partitions) - 1
        description = f"log {log.name!r} has no partition {name[:64]!r}: its partitions are 0 to {last} (see {log.name}{names.INFO_SUFFIX})"
        raise PeerError(names.NOT_FOUND, description)
    return log.partitions[index]


def answered_properties(grant: Grant) -> dict[Symbol, Value]:
    """The link properties to answer with: the bindings that are really in force. Spec: 4.1, 4.5.2, 4.6.1 to 4.6.3."""
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
        if grant.group:
            answered[names.CONSUMER_GROUP] = grant.group
        if grant.epoch is not None:
            answered[names.EPOCH] = ULong(grant.epoch)
    if grant.batching is not None:
        answered[names.BATCH_EVENTS] = UInt(grant.batching.events)
        answered[names.BATCH_BYTES] = ULong(grant.batching.bytes)
        if grant.batching.formats:
            answered[names.BATCH_FORMATS] = True
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
    return {Symbol(name): value for name, value in answered.items()}
