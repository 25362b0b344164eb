"""What moving a cursor does in each partition. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amqp_streams.client import CursorPosition, PartitionExtent


@dataclass(frozen=True, slots=True)
class Move:
    """A partition before and after: `before` None means that the cursor has no position there yet.

    `skips`: retained events that are not read then. `repeats`: those that are read again.
    """

    partition: str
    before: int | None
    after: int
    skips: int
    repeats: int


def moves(
    positions: Sequence[CursorPosition], extents: Sequence[PartitionExtent], targets: Mapping[str, int]
) -> list[Move]:
    """Return what moves. `targets`: the next event, by partition; the other partitions stay."""
    now = {each.partition: each.next_number for each in positions}
    found = []
    for extent in extents:
        if extent.partition not in targets:
            continue
        after = min(max(targets[extent.partition], extent.earliest), extent.next)
        given = now.get(extent.partition)
        # Events before the earliest are gone: they can neither be skipped nor repeated.
        before = extent.earliest if given is None else max(given, extent.earliest)
        skips, repeats = max(0, after - before), 0 if given is None else max(0, before - after)
        found.append(Move(extent.partition, given, after, skips, repeats))
    return found
