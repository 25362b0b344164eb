"""One consumer link from its attach to its end: what the node knows of it. Pure."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field

from amqp_streams.errors import PeerError
from amqp_streams.filters import Compiled
from amqp_streams.node.lookups import Lookup
from amqp_streams.node.writes import Wait
from amqp_streams.storage.ports import Partition, StoredLog
from amqp_streams.streams.attach import AttachRequest, Consuming, Pending
from amqp_streams.streams.batching import Batching
from amqp_streams.streams.consuming.progress import Progress
from amqp_streams.streams.consuming.start import resumed_filters, resumed_position, start_position
from amqp_streams.streams.groups.claims import Claim, GroupLink
from amqp_streams.streams.redirects import Redirected


@dataclass(slots=True, eq=False)
class Attach:
    """The state of one consumer link from attach to end.

    `partition`: the requested one. `reads`: how many partitions it counts in the limit `link_partitions`.
    `link`: the object that the shell has for the link; None until the attach is decided.
    """

    request: AttachRequest
    log: StoredLog
    partition: Partition | None
    filters: Compiled
    batching: Batching | None = None
    reads: int = 0
    claim: Claim | None = None
    group_link: GroupLink | None = None
    link: Pending | Consuming | None = None
    lookup: Lookup | None = None
    found: dict[int, int] = field(default_factory=dict)
    """For a link of which a home decides: the positions of the time of the filters."""
    opened: tuple[Partition, ...] = ()
    """The partitions for which its cursor was opened."""
    refusal: PeerError | None = None
    ended: bool = False
    number: int | None = None
    """Of a link of which a home decides: see `Decider`."""
    steps: Generator[Wait, None, None] | None = None
    """What such a link waits for."""

    @property
    def group(self) -> str | None:
        """Its consumer group."""
        return None if self.group_link is None else self.group_link.group

    @property
    def sought(self) -> dict[int, int]:
        """The positions of the time of the filters, as far as the store has answered."""
        return self.found if self.lookup is None else self.lookup.found

    @property
    def bound_to(self) -> int | None:
        """The partition that the link is, or will be, bound to.

        None if it is agnostic or waits for any partition.
        """
        if self.group_link is not None:
            return self.group_link.partition
        return None if self.partition is None else self.partition.index


def here(log: StoredLog, elsewhere: Redirected) -> tuple[Partition, ...]:
    """The partitions of a log that this container serves."""
    return (
        tuple(each for each in log.partitions if each.index not in elsewhere) if elsewhere else log.partitions
    )


def positions_of(
    attach: Attach, partitions: Iterable[Partition], progress: Progress | None
) -> list[tuple[Partition, int]]:
    """Where a reader begins in each partition."""
    filters, sought = attach.filters, attach.sought
    if progress is None:
        return [(each, start_position(filters, each, sought)) for each in partitions]
    resumed, kept = resumed_filters(filters), progress.cursor.positions
    return [(each, resumed_position(resumed, each, kept[each.index], sought)) for each in partitions]
