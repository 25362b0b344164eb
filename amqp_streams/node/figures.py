"""What there is to tell of consumer groups from outside: how many members, who waits, how far they are behind. Spec: Event Streams 4.5."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from amqp_streams.node.groups import Groups
from amqp_streams.node.places import Places
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.claims import UNNAMED


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """One consumer group. `members`: containers with links in it; `links`: those with a partition; `waiting`: those that have none yet.

    `lags`: for each partition that the group keeps a place in, the events that wait behind that place; nothing for a group that keeps none.
    """

    log: str
    group: str
    members: int
    links: int
    waiting: int
    lags: Mapping[int, int]


def group_figures(logs: Iterable[StoredLog], groups: Groups, places: Places) -> Iterator[GroupFigures]:
    """Of every group that has links, epochs or a place, by log and name. Cheap: touches no file."""
    for log in logs:
        kept = {cursor.key.group: cursor for cursor in places.of_groups(log) if cursor.key.group is not None}
        owned = groups.of(log)
        for group in sorted((kept.keys() | set(owned.groups())) - {UNNAMED}):
            holders = owned.holders(group)
            links = sum(hold.partition is not None for hold in holders)
            cursor = kept.get(group)
            positions = {} if cursor is None else cursor.positions
            lags = {
                index: max(0, log.partitions[index].end - max(at, log.partitions[index].start)) for index, at in sorted(positions.items())
            }
            yield GroupFigures(log.name, group, len({hold.member for hold in holders}), links, len(holders) - links, lags)
