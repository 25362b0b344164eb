"""The state of a running server at one moment, for `/metrics`, `/readyz` and people."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol

from amqp_streams.node import Node
from amqp_streams.node.figures import GroupFigures
from amqp_streams.storage.ports import PartitionFacts, StoredLog, Use

# Consumer links (each partition of theirs counts) with figures of their own; the number of those left out is
# a figure too.
CONSUMERS_MAX: Final = 1000
# The same for consumer groups, and for their partitions together.
GROUPS_MAX: Final = 1000
GROUP_LAGS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class LogStatus:
    """One event log. Counters start at zero with the process; `_in` counts what was accepted, `_out` what was
    sent to consumers.

    `repeated`: events that were accepted and not stored, because a numbered producer had sent them before.
    """

    name: str
    partitions: tuple[PartitionFacts, ...]
    events_in: int
    bytes_in: int
    events_out: int
    bytes_out: int
    repeated: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """One consumer link on one partition; `position` is the next record it gets, `lag` how many are waiting
    for it.

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
    """One consumer group: its members, its links that wait for a partition, how many links were asked to
    leave for others since the start.

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
    """How often and for how long (ms) a user's links waited, and what was refused. Since the start of the
    process.
    """

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
    """The whole server.

    `consumers_more`, `groups_more`: those beyond the bounds, which are counted only. `uses`: what is used of
    each bound of the node. `request_seconds`: what the answers of `$info` and `$management` have taken.
    `faults`: how often steps of the regular work failed. `hindered`: why it takes no events, or does not do
    its regular work.
    """

    ready: bool
    connections: int
    producer_links: int
    consumer_links: int
    pending_bytes: int
    logs: tuple[LogStatus, ...]
    consumers: tuple[ConsumerStatus, ...]
    quotas: tuple[QuotaStatus, ...] = ()
    access_refused: int = 0
    consumers_more: int = 0
    groups_more: int = 0
    uses: Mapping[str, Use] = field(default_factory=dict)
    request_seconds: float = 0.0
    faults: Mapping[str, int] = field(default_factory=dict)
    hindered: str | None = None
    groups: tuple[GroupStatus, ...] = ()


class StatusSource(Protocol):
    """The source of the figures."""

    def not_ready(self) -> str | None:
        """Why the node does not serve normally. None: it does. Cheap."""

    def status(self) -> NodeStatus:
        """The current figures."""


def log_statuses(logs: Mapping[str, StoredLog], node: Node) -> tuple[LogStatus, ...]:
    """The figures of every log."""
    statuses = []
    for name, stored in logs.items():
        counters = node.counters[name]
        facts = tuple(partition.facts() for partition in stored.partitions)
        figures = (
            counters.events_in,
            counters.bytes_in,
            counters.events_out,
            counters.bytes_out,
            counters.repeated,
        )
        statuses.append(LogStatus(name, facts, *figures))
    return tuple(statuses)


def consumer_statuses(node: Node, count_max: int) -> tuple[ConsumerStatus, ...]:
    """Consumer links' figures, one for each of their partitions, at most so many in all."""
    return tuple(islice(_consumer_statuses(node), count_max))


def _consumer_statuses(node: Node) -> Iterator[ConsumerStatus]:
    for consumer in node.consumers():
        log, request = consumer.log, consumer.request
        for index, position in consumer.reader.positions.items():
            lag = max(0, log.partitions[index].end - position)
            described = (
                log.name,
                index,
                request.container,
                request.link,
                position,
                lag,
                consumer.group,
                consumer.epoch,
            )
            yield ConsumerStatus(*described)


def group_statuses(
    figures: Sequence[GroupFigures], moves: Mapping[tuple[str, str], int]
) -> tuple[GroupStatus, ...]:
    """Consumer groups' figures. `moves`: the links that were asked to leave, by log and group."""
    return tuple(
        GroupStatus(
            each.log, each.group, each.members, each.waiting, moves.get((each.log, each.group), 0), each.lags
        )
        for each in figures
    )
