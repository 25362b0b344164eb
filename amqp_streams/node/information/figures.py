"""Figures of consumer groups: members, waiting attaches, lag. Spec: Event Streams 4.5."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from amqp_streams.node.cursors import KeptCursors
from amqp_streams.node.groups import Groups
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.groups.claims import UNNAMED, GroupLink


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """One consumer group.

    `members`: containers with links in it; `links`: links with a partition; `waiting`: attaches.

    `lags`: by partition, the events after the group's cursor; empty for a group without a cursor.
    """

    log: str
    group: str
    members: int
    links: int
    waiting: int
    lags: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Figures:
    """The groups that are shown, and how many `more` exist."""

    shown: Sequence[GroupFigures]
    more: int


def group_figures(
    logs: Iterable[StoredLog], groups: Groups, cursors: KeptCursors, *, groups_max: int, lags_max: int
) -> Figures:
    """Figures of groups with links, epochs or a cursor: at most `groups_max`, and `lags_max` partitions.

    Reads no file, and no cursor of groups that are not shown.
    """
    shown: list[GroupFigures] = []
    more = lags = 0
    for log in logs:
        kept = {cursor.key.group: cursor for cursor in cursors.of_groups(log) if cursor.key.group is not None}
        owned = groups.of(log)
        for group in sorted((kept.keys() | set(owned.groups())) - {UNNAMED}):
            cursor = kept.get(group)
            wide = 0 if cursor is None else len(cursor.positions)
            if len(shown) == groups_max or lags + wide > lags_max:
                more += 1
                continue
            lags += wide
            shown.append(
                _figures(
                    log,
                    group,
                    owned.links(group),
                    {} if cursor is None else cursors.present(cursor).positions,
                )
            )
    return Figures(shown, more)


def _figures(
    log: StoredLog, group: str, all_links: Sequence[GroupLink], positions: Mapping[int, int]
) -> GroupFigures:
    links = sum(link.partition is not None for link in all_links)
    lags = {
        index: max(0, log.partitions[index].end - max(at, log.partitions[index].start))
        for index, at in sorted(positions.items())
    }
    return GroupFigures(
        log.name, group, len({link.member for link in all_links}), links, len(all_links) - links, lags
    )
