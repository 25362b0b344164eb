"""The state of a running server at one moment, for `/metrics`, `/readyz` and people."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol

from amqp_streams.node import Node
from amqp_streams.node.information.figures import GroupFigures
from amqp_streams.node.logs import LogCounters
from amqp_streams.storage.ports import PartitionFacts, StoredLog, Use
from amqp_streams.storage.questions import Figure
from amqp_streams.streams.steps import Steps

# How many consumer links have figures of their own (each partition counts). The others are only counted.
CONSUMERS_MAX: Final = 1000
# The same limit for consumer groups, and for the partitions of all groups together.
GROUPS_MAX: Final = 1000
GROUP_LAGS_MAX: Final = 10_000
_PARTITIONS_A_STEP: Final = 256
"""How many partitions a step reads: it reads only their figures, in about a microsecond each."""
_NOTHING: Final = LogCounters()


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The figures of one event log.

    Counters start at zero with the process. `_in`: accepted. `_out`: sent to consumers.

    `repeated`: events of idempotent producers that were accepted but not stored again.
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
    """One consumer link on one partition.

    `position`: the offset of the next event that it gets. `lag`: the number of events from there to the end.

    `group`, `epoch`: the consumer group and the link's epoch in it; None outside of groups.
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
    """One consumer group.

    `members`: containers. `waiting`: links that wait for a partition. `moves`: links that were asked to hand
    over since the start of the process.

    `lags`: how many events the group's cursor is behind, by partition.
    """

    log: str
    group: str
    members: int
    waiting: int
    moves: int
    lags: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QuotaStatus:
    """How often and how long the links of one user waited for the quota, and what the quota refused.

    Since the start of the process.
    """

    user: str
    waits_in: int = 0
    waited_in_ms: int = 0
    waits_out: int = 0
    waited_out_ms: int = 0
    connections_refused: int = 0
    links_refused: int = 0

    def __add__(self, other: "QuotaStatus") -> "QuotaStatus":
        """Return the sum, with the user name of the left operand."""
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
    """The figures of the whole server.

    `consumers_more`, `groups_more`: how many are not shown in `consumers` and `groups`. `uses`: how much of
    each limit of the node is in use. `request_seconds`: time spent on `$info` and `$management`. `faults`:
    how often each step of the regular work failed. `hindered`: why the node accepts no events or its regular
    work fails; None if it works normally. `figures`: of the store. `deliveries_refused`: how many deliveries
    of producers were refused, by condition.
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
    deliveries_refused: Mapping[str, int] = field(default_factory=dict)
    consumers_more: int = 0
    groups_more: int = 0
    uses: Mapping[str, Use] = field(default_factory=dict)
    request_seconds: float = 0.0
    faults: Mapping[str, int] = field(default_factory=dict)
    hindered: str | None = None
    groups: tuple[GroupStatus, ...] = ()
    figures: Sequence[Figure] = ()


class StatusSource(Protocol):
    """Where the figures come from."""

    def not_ready(self) -> str | None:
        """Why the node does not serve normally; None if it does. Cheap enough for a frequent health probe."""

    def status(self) -> Steps[NodeStatus]:
        """Return the current figures, computed in steps."""


def log_statuses(logs: Sequence[StoredLog], node: Node) -> Steps[tuple[LogStatus, ...]]:
    """Return the figures of every log."""
    statuses = []
    since = 0
    for stored in logs:
        # The log may have been deleted in an earlier step.
        counters = node.counters.get(stored.name, _NOTHING)
        facts = tuple(partition.facts() for partition in stored.partitions)
        figures = (
            counters.events_in,
            counters.bytes_in,
            counters.events_out,
            counters.bytes_out,
            counters.repeated,
        )
        statuses.append(LogStatus(stored.name, facts, *figures))
        since += len(facts) + 1
        if since >= _PARTITIONS_A_STEP:
            since = 0
            yield
    return tuple(statuses)


def consumer_statuses(node: Node, count_max: int) -> tuple[ConsumerStatus, ...]:
    """Return one figure for each partition of each consumer link, at most `count_max`."""
    return tuple(islice(_consumer_statuses(node), count_max))


def _consumer_statuses(node: Node) -> Iterator[ConsumerStatus]:
    for consumer in node.consumers():
        log, request = consumer.log, consumer.request
        for index, position in consumer.reader.positions.items():
            partition = log.partitions[index]
            # Retention may have removed what the reader has not read.
            following = max(position, partition.start)
            described = (
                log.name,
                index,
                request.container,
                request.link,
                following,
                max(0, partition.end - following),
                consumer.group,
                consumer.epoch,
            )
            yield ConsumerStatus(*described)


def group_statuses(
    figures: Sequence[GroupFigures], moves: Mapping[tuple[str, str], int]
) -> tuple[GroupStatus, ...]:
    """Return the figures of consumer groups.

    `moves`: how many links were asked to hand over, by log and group.
    """
    return tuple(
        GroupStatus(
            each.log, each.group, each.members, each.waiting, moves.get((each.log, each.group), 0), each.lags
        )
        for each in figures
    )
