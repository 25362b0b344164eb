"""What the node answers about one connection and its links."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from amqp_streams import names
from amqp_streams.config import Limits
from amqp_streams.proton import links
from amqp_streams.server.administration.holding import DETAILS, Reason, link_reason, pause_reasons
from amqp_streams.server.committing import Commits
from amqp_streams.server.dispatch import Dispatch
from amqp_streams.server.links.consumer import ConsumerLink
from amqp_streams.server.links.link import AnyLink, Pause
from amqp_streams.server.links.producer import ProducerLink
from amqp_streams.server.listening.channel import ByteChannel
from amqp_streams.server.traffic import Rates, Totals
from amqp_streams.storage.ports import Partition
from amqp_streams.streams.attach import (
    Consuming,
    Informing,
    Kept,
    Managing,
    Pending,
    Producing,
    Relaying,
    Replying,
)
from amqp_streams.streams.steps import Steps
from amqp_streams.wire.types import Symbol, ULong, Value

PARTITIONS_NAMED_MAX: Final = 100
"""How many partitions of a link are named. The others are only counted."""
POSITIONS_A_STEP: Final = 256
"""Of how many partitions a step reads the lag."""
SUMMED_A_STEP: Final = 128
"""Of how many links a step of a summary reads the credit and what they wait for."""
SHOWN_MAX: Final = 128
"""Names, addresses, groups and container-ids come from clients. Longer ones are cut."""
ROLES: Final[Mapping[type, str]] = {
    Producing: "producer",
    Relaying: "producer",
    Consuming: "consumer",
    Informing: "information",
    Managing: "requests",
    Replying: "answers",
    Kept: "subscription",
    Pending: "attaching",
}


class Described(Protocol):
    """A connection that is described.

    `number`: identifies it within the process. `since_ms`: when it was accepted, since 1970.
    """

    user: str | None
    mechanism: str | None
    number: int
    since_ms: int
    dispatch: Dispatch | None
    pauses: set[Pause]

    @property
    def channel(self) -> ByteChannel:
        """The byte stream to the client."""

    @property
    def admitted(self) -> bool:
        """Whether the client has passed the SASL layer."""

    def blocked(self) -> bool:
        """Whether the client does not read."""


class Service(Protocol):
    """What descriptions read."""

    limits: Limits

    @property
    def commits(self) -> Commits:
        """What waits for the disk."""

    def monotonic_ms(self) -> int:
        """Milliseconds of a monotonic clock."""


def attached(connection: Described) -> Collection[AnyLink]:
    """The links of a connection."""
    return () if connection.dispatch is None else connection.dispatch.links.values()


def container(connection: Described) -> str | None:
    """The container-id of the client, cut to SHOWN_MAX; None: it has not sent `open`."""
    dispatch = connection.dispatch
    return _cut(dispatch.container) if dispatch is not None and dispatch.opened else None


def totals(connection: Described) -> Totals:
    """What a connection has sent and received."""
    return (
        Totals() if connection.dispatch is None else connection.dispatch.traffic.totals(attached(connection))
    )


def rates(connection: Described, sums: Totals, now_ms: int) -> Rates:
    """How fast, from its present sums."""
    return Rates() if connection.dispatch is None else connection.dispatch.traffic.rates(sums, now_ms)


def state(connection: Described) -> str:
    """How far a connection has come."""
    dispatch = connection.dispatch
    if not connection.admitted or dispatch is None:
        return "login"
    return "closing" if dispatch.closed else "open" if dispatch.opened else "opening"


@dataclass(slots=True)
class _Summed:
    """What a summary adds up over the links. `held`: how many links each reason holds."""

    links: int = 0
    producers: int = 0
    consumers: int = 0
    credit: int = 0
    unsettled: int = 0
    held: Counter[Reason] = field(default_factory=Counter)

    def add(self, link: AnyLink, service: Service) -> None:
        """Add a link that is alive."""
        self.links += 1
        self.producers += isinstance(link, ProducerLink)
        self.consumers += isinstance(link, ConsumerLink)
        self.credit += max(0, links.credit(link.pointer))
        self.unsettled += links.unsettled(link.pointer)
        reason = link_reason(link, service.commits, service.limits)
        if reason is not None:
            self.held[reason] += 1


def summary(connection: Described, name: str, service: Service, *, own: bool) -> Steps[dict[Value, Value]]:
    """What a list says about a connection. `own`: the request came over it."""
    summed = _Summed()
    for number, link in enumerate(tuple(attached(connection)), 1):
        if link.alive:  # it may have ended since the first step
            summed.add(link, service)
        if number % SUMMED_A_STEP == 0:
            yield
    channel, sums = connection.channel, totals(connection)
    return {
        names.NAME: name,
        names.CURSOR_USER: connection.user,
        names.CONNECTION_MECHANISM: connection.mechanism,
        names.CONNECTION_PEER: channel.peer,
        names.CURSOR_CONTAINER: container(connection),
        names.CONNECTION_PROTOCOL: channel.protocol,
        names.CONNECTION_TLS: channel.secure,
        names.INFO_STATE: state(connection),
        names.CONNECTION_SINCE: connection.since_ms,
        names.CONNECTION_OWN: own,
        names.CONNECTION_LINKS: summed.links,
        names.CONNECTION_PRODUCERS: summed.producers,
        names.CONNECTION_CONSUMERS: summed.consumers,
        names.LINK_CREDIT: summed.credit,
        names.LINK_UNSETTLED: summed.unsettled,
        names.CONNECTION_UNREAD: channel.pending(),
        **_traffic(sums, rates(connection, sums, service.monotonic_ms())),
        names.CONNECTION_HELD: _held(connection, summed.held),
    }


def link_map(link: AnyLink, service: Service) -> Steps[dict[Value, Value]]:
    """What the node says about one link. It must be alive at the last step."""
    lag: dict[Value, Value] = {}
    if isinstance(link.grant, Consuming):
        lag = {names.CURSOR_LAG: (yield from _lag(link.grant))}
        if not link.alive:
            return {}
    reason = link_reason(link, service.commits, service.limits)
    return {
        names.NAME: link.name[:SHOWN_MAX],
        names.LINK_ROLE: ROLES[type(link.grant)],
        **_subject(link),
        **lag,
        names.LINK_CREDIT: max(0, links.credit(link.pointer)),
        names.LINK_UNSETTLED: links.unsettled(link.pointer),
        names.LINK_EVENTS: link.events,
        names.INFO_BYTES: link.bytes,
        names.CONNECTION_HELD: None if reason is None else _because(reason),
    }


def name(link: AnyLink) -> str:
    """The name of a link, cut to SHOWN_MAX."""
    return link.name[:SHOWN_MAX]


def address(link: AnyLink) -> str | None:
    """The address of a link as its client named it, cut to SHOWN_MAX; None: it has none."""
    match link.grant:
        case Producing(log=log) | Consuming(log=log):
            found: str | None = log.name
        case Informing(log=log):
            found = log.name + names.INFO_SUFFIX
        case Managing() | Replying():
            found = names.MANAGEMENT
        case Kept(address=kept):
            found = kept
        case Pending(request=request):
            found = request.address
        case _:
            found = None
    return _cut(found)


def _subject(link: AnyLink) -> dict[Value, Value]:
    """What a link is about: its address, log, partitions and group."""
    where: dict[Value, Value] = {names.LINK_ADDRESS: address(link)}
    match link.grant:
        case Producing(log=log, partition=partition):
            bound = {} if partition is None else _partitions((partition,))
            return {**where, names.INFO_LOG: log.name, **bound}
        case Consuming() as consuming:
            return {**where, **_consuming(consuming)}
        case Informing(log=log):
            return {**where, names.INFO_LOG: log.name}
        case _:
            return where


def group(link: AnyLink) -> str | None:
    """The consumer group of a link, cut to SHOWN_MAX; None: it has none."""
    # An epoch without a group has the group "" (4.5.2).
    return _cut(link.grant.group or None) if isinstance(link.grant, Consuming) else None


def _lag(grant: Consuming) -> Steps[int]:
    """How many events wait for a consumer, in all its partitions."""
    positions, lag = grant.reader.positions, 0
    for number, partition in enumerate(grant.partitions, 1):
        following = positions.get(partition.index)
        if following is not None:
            lag += max(0, partition.end - max(following, partition.start))
        if number % POSITIONS_A_STEP == 0:
            yield
    return lag


def _consuming(grant: Consuming) -> dict[Value, Value]:
    return {
        names.INFO_LOG: grant.log.name,
        **_partitions(grant.partitions),
        names.CURSOR_GROUP: _cut(grant.group or None),
        names.CURSOR_EPOCH: None if grant.epoch is None else ULong(grant.epoch),
    }


def _partitions(found: Sequence[Partition]) -> dict[Value, Value]:
    return {
        names.INFO_PARTITIONS: [Symbol(str(each.index)) for each in found[:PARTITIONS_NAMED_MAX]],
        names.LINK_PARTITION_COUNT: len(found),
    }


def _traffic(sums: Totals, speeds: Rates) -> dict[Value, Value]:
    keys = (
        names.TRAFFIC_EVENTS_IN,
        names.TRAFFIC_BYTES_IN,
        names.TRAFFIC_EVENTS_OUT,
        names.TRAFFIC_BYTES_OUT,
    )
    shown: dict[Value, Value] = dict(zip(keys, sums, strict=True))
    return shown | {
        key + names.TRAFFIC_RATE: round(speed, 3) for key, speed in zip(keys, speeds, strict=True)
    }


def _held(connection: Described, of_links: Mapping[Reason, int]) -> list[Value]:
    """The reasons, and how many links each holds; 0: the connection itself."""
    pauses = pause_reasons(connection.pauses, blocked=connection.blocked())
    found = {**dict.fromkeys(pauses, 0), **of_links}
    return [_because(reason) | {names.HELD_LINKS: count} for reason, count in found.items()]


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:SHOWN_MAX]


def _because(reason: Reason) -> dict[Value, Value]:
    return {names.HELD_REASON: str(reason), names.HELD_DETAIL: DETAILS[reason]}
