"""A moment's picture of a running server: what `/metrics`, `/readyz` and people are shown."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from amqp_streams.node import Node
from amqp_streams.storage.ports import PartitionFacts, StoredLog


@dataclass(frozen=True, slots=True)
class LogStatus:
    """One event log. Counters start at zero with the process; `_in` counts what was accepted, `_out` what was sent to consumers."""

    name: str
    partitions: tuple[PartitionFacts, ...]
    events_in: int
    bytes_in: int
    events_out: int
    bytes_out: int


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """One consumer link on one partition; `position` is the next record it gets, `lag` how many are waiting for it.

    `group`, `epoch`: its consumer group and its epoch there, if it is in one.
    """

    log: str
    partition: int
    container: str
    link: str
    position: int
    lag: int
    group: str | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """One consumer group: its members, its links that wait for a partition, how many links were asked to leave for others since the start.

    `lags`: for each partition in which it keeps a place, how many events wait behind that.
    """

    log: str
    group: str
    members: int
    waiting: int
    moves: int
    lags: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QuotaStatus:
    """How often and for how long (ms) a user's links waited, and what it was refused. All since the process started."""

    user: str
    waits_in: int = 0
    waited_in_ms: int = 0
    waits_out: int = 0
    waited_out_ms: int = 0
    connections_refused: int = 0
    links_refused: int = 0

    def __add__(self, other: "QuotaStatus") -> "QuotaStatus":
        """The sum, under this one's name."""
        return QuotaStatus(
            self.user,
            self.waits_in + other.waits_in,
            self.waited_in_ms + other.waited_in_ms,
            self.waits_out + other.waits_out,
            self.waited_out_ms + other.waited_out_ms,
            self.connections_refused + other.connections_refused,
            self.links_refused + other.links_refused,
        )


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The whole server."""

    ready: bool
    connections: int
    producer_links: int
    consumer_links: int
    pending_bytes: int
    logs: tuple[LogStatus, ...]
    consumers: tuple[ConsumerStatus, ...]
    quotas: tuple[QuotaStatus, ...] = ()
    access_refused: int = 0
    groups: tuple[GroupStatus, ...] = ()


class StatusSource(Protocol):
    """Whoever can tell; cheap enough to be asked every second."""

    def status(self) -> NodeStatus:
        """Figures of this moment."""


def log_statuses(logs: Mapping[str, StoredLog], node: Node) -> tuple[LogStatus, ...]:
    """Every log's figures."""
    statuses = []
    for name, stored in logs.items():
        counters = node.counters[name]
        facts = tuple(partition.facts() for partition in stored.partitions)
        statuses.append(LogStatus(name, facts, counters.events_in, counters.bytes_in, counters.events_out, counters.bytes_out))
    return tuple(statuses)


def consumer_statuses(node: Node) -> tuple[ConsumerStatus, ...]:
    """Every consumer link's figures, one for each of its partitions."""
    statuses = []
    for consumer in node.consumers():
        log, request = consumer.log, consumer.request
        for index, position in consumer.reader.positions.items():
            lag = max(0, log.partitions[index].end - position)
            described = (log.name, index, request.container, request.link, position, lag, consumer.group, consumer.epoch)
            statuses.append(ConsumerStatus(*described))
    return tuple(statuses)


def group_statuses(node: Node, moves: Mapping[tuple[str, str], int]) -> tuple[GroupStatus, ...]:
    """Every consumer group's figures. `moves`: the links that were asked to leave, by log and group."""
    return tuple(
        GroupStatus(each.log, each.group, each.members, each.waiting, moves.get((each.log, each.group), 0), each.lags)
        for each in node.group_figures()
    )
