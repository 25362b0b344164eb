"""Requests about groups and cursors that have homes: list, describe, move, remove. Pure.

What is shown is in `describing/reading.py`. What is changed is changed at its home: see
`changing/changes.py`.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.homes.changing import changes
from amqp_streams.homes.changing.asking import Asking
from amqp_streams.homes.changing.changes import Changes, HomeCursors
from amqp_streams.homes.describing import reading
from amqp_streams.homes.describing.inquiring import Inquiring
from amqp_streams.homes.describing.reading import Links, Reading
from amqp_streams.node.information.figures import Figures, GroupFigures, group_figures
from amqp_streams.node.lookups import Answering
from amqp_streams.node.requests import Operations
from amqp_streams.storage.ports import StoredLog


class Here(changes.Here, reading.Here, Protocol):
    """What this node knows of buckets: their states, and more of those whose home it is."""


class KeptRequests:
    """`logs`: of the store. `links`: see `Links`. `now_ms`, `refreshed`: see `Changes`."""

    def __init__(
        self,
        logs: Mapping[str, StoredLog],
        here: Here,
        links: Links,
        *,
        asking: Asking,
        inquiring: Inquiring,
        now_ms: Callable[[], int],
        refreshed: Callable[[], Answering[None]],
    ) -> None:
        self._reading: Final = Reading(logs, here, links, inquiring, now_ms)
        self.changes: Final = Changes(
            logs,
            here,
            asking,
            now_ms,
            refreshed,
            read_group=self._reading.read_group,
            read_cursor=self._reading.read_cursor,
        )
        self._logs: Final = logs
        self._here: Final = here

    def groups(self) -> Operations:
        """The operations on groups by name."""
        read, query = self._reading.read_group, self._reading.query_groups
        return {"READ": read, "QUERY": query, **self.changes.groups()}

    def cursors(self) -> Operations:
        """The operations on cursors by name."""
        read, query = self._reading.read_cursor, self._reading.query_cursors
        return {"READ": read, "QUERY": query, **self.changes.cursors()}

    def figures(self, groups_max: int, lags_max: int) -> Figures:
        """The figures of the groups whose homes are here: so each group counts at one node."""
        logs = {log.incarnation: log for log in self._logs.values()}
        shown: list[GroupFigures] = []
        more = 0
        for serving in filter(None, map(self._here.serving, range(BUCKETS))):
            found = group_figures(
                [logs[each] for each in serving.groups.counts.incarnations() if each in logs],
                serving.groups,
                HomeCursors(serving, ()),
                groups_max=groups_max - len(shown),
                lags_max=lags_max - sum(len(each.lags) for each in shown),
            )
            shown += found.shown
            more += found.more
        return Figures(shown, more)
