"""Counts the consumer groups of each log where they come and go, so that their number needs no search.

Law: a group counts once, however it is known; the number equals that of a list of the groups
(`tests/amqp_streams/node/test_groups_machine.py`).
"""

from collections.abc import Collection, Iterator
from enum import Flag

from amqp_streams.streams.groups.claims import UNNAMED


class KnownBy(Flag):
    """Why a node knows a group: it has a cursor, or it has links or recorded epochs."""

    CURSOR = 1
    CLAIM = 2


class GroupCounts:
    """The groups of all logs, by the incarnation of the log."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, KnownBy]] = {}

    def add(self, incarnation: str, group: str, by: KnownBy) -> None:
        """The group is known by this. A second call changes nothing; the unnamed group does not count."""
        if group != UNNAMED:
            known = self._known.setdefault(incarnation, {})
            known[group] = known.get(group, by) | by

    def remove(self, incarnation: str, group: str, by: KnownBy) -> None:
        """The group is not known by this any more. A second call changes nothing."""
        known = self._known.get(incarnation, {})
        if group not in known:
            return
        known[group] &= ~by
        if not known[group]:
            del known[group]
        if not known:
            del self._known[incarnation]

    def forget(self, incarnation: str) -> None:
        """The log was deleted with its groups."""
        self._known.pop(incarnation, None)

    def incarnations(self) -> Collection[str]:
        """The logs that have groups."""
        return self._known.keys()

    def of(self, incarnation: str) -> int:
        """The number of groups of a log."""
        return len(self._known.get(incarnation, ()))

    def without_cursor(self, incarnation: str) -> Iterator[str]:
        """The groups of a log that have links or recorded epochs, and no cursor."""
        known = self._known.get(incarnation, {})
        return (group for group, by in known.items() if KnownBy.CURSOR not in by)
