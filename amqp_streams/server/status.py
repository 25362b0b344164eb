"""A moment's picture of a running server: what `/metrics`, `/readyz` and people are shown."""

from dataclasses import dataclass
from typing import Protocol

from amqp_streams.storage.ports import PartitionFacts


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
    """One consumer link on one partition; `position` is the next record it gets, `lag` how many are waiting for it."""

    log: str
    partition: int
    container: str
    link: str
    position: int
    lag: int


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


class StatusSource(Protocol):
    """Whoever can tell; cheap enough to be asked every second."""

    def status(self) -> NodeStatus:
        """Figures of this moment."""
