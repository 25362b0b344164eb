"""What a peer asks for when it attaches a link, and what it is granted. Spec: Event Streams 4.1, 4.3, 4.6.1, 6; AMQP 2.6.3, 3.5.

A refusal is a `PeerError`; the shell answers it with a null terminus and a closing detach (design decision 11).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.storage.ports import Partition, StoredLog
from amqp_streams.streams.reader import Reader
from amqp_streams.streams.routing import RoundRobin, partition_index
from amqp_streams.wire.types import Symbol, Value


@dataclass(frozen=True, slots=True)
class AttachRequest:
    """One attach as it came. `consumer`: the peer receives. `address`: of the terminus at this node; None for a null terminus.

    `peer_address`: of the terminus at the peer, where answers to requests are sent. `dynamic`: the node is to make the address up.
    """

    link: str
    container: str
    consumer: bool
    address: str | None
    peer_address: str | None = None
    dynamic: bool = False
    properties: Mapping[str, Value] = field(default_factory=dict)
    filters: Mapping[str, Value] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Producing:
    """A link that appends to a log: to one partition (bound), or to any (agnostic)."""

    log: StoredLog
    partition: Partition | None
    round_robin: RoundRobin = field(default_factory=RoundRobin)


@dataclass(slots=True, eq=False)
class Relaying:
    """A link with a null target: each message names its log in `to` (Anonymous Terminus 1.0). One router for each log."""

    producing: dict[str, Producing] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Consuming:
    """A link that reads a log. `announce`: its next delivery tells the partitions that it is associated with (4.6.5)."""

    request: AttachRequest
    log: StoredLog
    partitions: tuple[Partition, ...]
    bound: bool
    reader: Reader
    filters: Mapping[str, Value]
    announce: bool
    carrier: object = None
    """The shell's link, for the shell: it asks the node for consumers and gets its own links back."""


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


Grant = Producing | Relaying | Consuming | Informing | Managing | Replying


def requested_partition(request: AttachRequest, log: StoredLog) -> Partition | None:
    """The partition that the link asks to be bound to; None if it asks for none. Spec: 4.1, 4.3, 4.6.1.

    Raises:
        PeerError: it does not exist (MUST be rejected), or the property is no symbol.
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
    """The link properties to answer with: the binding that is really in force. Spec: 4.1, 4.6.1 (a bound link MUST say so)."""
    match grant:
        case Producing(partition=partition) if partition is not None:
            return {Symbol(names.PARTITION): Symbol(str(partition.index))}
        case Consuming(bound=True, partitions=(partition,)):
            return {Symbol(names.PARTITION): Symbol(str(partition.index))}
        case _:
            return {}
