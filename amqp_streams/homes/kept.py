"""Requests about groups and cursors that have homes: list, describe, move, remove. Pure.

Each node follows the states of all buckets, so each node answers for all. Of a group whose home is another
node, this node knows only the members with links here, and positions may be a second old
(`Times.positions_ms`). What is changed is changed at its home: see `changing/changes.py`.

Law: a request looks at a bounded number of keys before the loop serves others.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from amqp_streams import names
from amqp_streams.config import GroupSettings, Limits
from amqp_streams.errors import PeerError
from amqp_streams.homes.buckets import BUCKETS, bucket_of
from amqp_streams.homes.changing import changes
from amqp_streams.homes.changing.asking import Asking
from amqp_streams.homes.changing.changes import Changes, HomeCursors
from amqp_streams.homes.states import BucketStates
from amqp_streams.node.cursor_requests import CursorRequests, GroupRequests, asked_logs
from amqp_streams.node.cursors import KeptCursors
from amqp_streams.node.groups import Groups
from amqp_streams.node.information.figures import Figures, GroupFigures, group_figures
from amqp_streams.node.lookups import Answering
from amqp_streams.node.requests import Operations, RequestSteps
from amqp_streams.node.writes import Writes
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.consuming.cursors import PREFIX, Cursor, CursorKey, encoded, group_key
from amqp_streams.streams.groups import epochs
from amqp_streams.streams.groups.claims import UNNAMED, Claim
from amqp_streams.streams.groups.ownership import Ownership
from amqp_streams.streams.management import Request
from amqp_streams.streams.redirects import NOWHERE
from amqp_streams.streams.steps import Steps
from amqp_streams.wire.types import Value

KEYS_A_STEP: Final = 2000
"""How many keys a request looks at in one step, in about a millisecond."""


class Here(changes.Here, Protocol):
    """What this node knows of buckets: their states, and more of those whose home it is."""

    def owned(self, bucket: int, log: StoredLog) -> Ownership | None:
        """The owners of partitions, if the home is here."""

    def cursor(self, bucket: int, key: CursorKey) -> Cursor | None:
        """A cursor with its positions of now, if the home is here."""

    def uses(self, bucket: int, key: CursorKey) -> bool | None:
        """Whether a link has this cursor; None: the home is not here."""


@dataclass(frozen=True, slots=True)
class _Cursors(CursorRequests):
    here: Here

    def _described(self, log: StoredLog, cursor: Cursor) -> Steps[dict[Value, Value]]:
        # Without the short form of `super`, which classes with slots do not have.
        described = yield from CursorRequests._described(self, log, cursor)
        active = self.here.uses(_bucket(cursor.key), cursor.key)
        return {**described, names.CURSOR_ACTIVE: active}


Links: TypeAlias = Callable[[str, str], Iterable[tuple[Claim, int | None]]]
"""The claims of this node's links in a group of a log, with the partitions that they have."""


class KeptRequests:
    """`logs`: of the store. `now_ms`, `refreshed`: see `Changes`."""

    def __init__(
        self,
        logs: Mapping[str, StoredLog],
        here: Here,
        links: Links,
        *,
        settings: GroupSettings,
        limits: Limits,
        asking: Asking,
        now_ms: Callable[[], int],
        refreshed: Callable[[], Answering[None]],
    ) -> None:
        self._links: Final = links
        self.changes: Final = Changes(
            logs,
            here,
            asking,
            now_ms,
            refreshed,
            read_group=self._read_group,
            read_cursor=self._read_cursor,
        )
        self._logs: Final = logs
        self._here: Final = here
        self._settings: Final = settings
        self._limits: Final = limits

    def groups(self) -> Operations:
        """The operations on groups by name."""
        return {"READ": self._read_group, "QUERY": self._query_groups, **self.changes.groups()}

    def cursors(self) -> Operations:
        """The operations on cursors by name."""
        return {"READ": self._read_cursor, "QUERY": self._query_cursors, **self.changes.cursors()}

    # -- figures

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

    # -- one

    def _read_group(self, request: Request, newer: bytes | None = None) -> RequestSteps:
        """`newer`: the value of the cursor's state, which this node may not have read yet."""
        log, group = self._logs.get(request.log), request.name
        values: dict[str, bytes] = {}
        owned: Ownership | None = None
        if log is not None:
            key = group_key(log.incarnation, group)
            bucket = _bucket(key)
            owned, states = self._here.owned(bucket, log), self._here.states(bucket)
            for index in range(len(log.partitions)):
                _take(values, states, next(iter(epochs.epoch_change(log.incarnation, group, index, 0))))
            self._take_cursor(values, bucket, key)
            if newer is not None:
                values[key.state] = newer
        tables = self._tables(values)
        if log is not None and owned is not None:
            _show_members(tables[1], log, owned, group)
        if log is not None:
            self._show_own(tables[1].of(log), log, group)
        return GroupRequests(*tables).read(request)

    def _show_own(self, shown: Ownership, log: StoredLog, group: str) -> None:
        """Show the links of this node: the home may be elsewhere, or not know them yet."""
        for claim, partition in self._links(log.incarnation, group):
            shown.know(group)
            if partition is not None:
                with suppress(PeerError):  # the home has shown it
                    shown.claim(Claim(group, partition, None, claim.member), 0)

    def _read_cursor(self, request: Request, newer: bytes | None = None) -> RequestSteps:
        log = self._logs.get(request.log)
        values: dict[str, bytes] = {}
        for bucket in range(BUCKETS) if log is not None else ():
            assert log is not None
            _take(values, self._here.states(bucket), f"{PREFIX}{log.incarnation}/{request.name}")
        if newer is not None and log is not None:
            values[f"{PREFIX}{log.incarnation}/{request.name}"] = newer
        return _Cursors(*self._tables(values), self._here).read(request)

    def _take_cursor(self, values: dict[str, bytes], bucket: int, key: CursorKey) -> None:
        live = self._here.cursor(bucket, key)
        if live is not None:
            values[key.state] = encoded(live)
        else:
            _take(values, self._here.states(bucket), key.state)

    # -- all

    def _query_groups(self, request: Request) -> RequestSteps:
        logs = asked_logs(self._logs, request)
        values = yield from self._gathered({log.incarnation for log in logs}, (PREFIX, epochs.PREFIX))
        tables = self._tables(values)
        for log in logs:
            for bucket in range(BUCKETS):
                owned = self._here.owned(bucket, log)
                for group in owned.groups() if owned is not None else ():
                    assert owned is not None
                    _show_members(tables[1], log, owned, group)
            yield None
        return (yield from GroupRequests(*tables).query(request))

    def _query_cursors(self, request: Request) -> RequestSteps:
        logs = asked_logs(self._logs, request)
        values = yield from self._gathered({log.incarnation for log in logs}, (PREFIX,))
        return (yield from _Cursors(*self._tables(values), self._here).query(request))

    def _gathered(
        self, incarnations: set[str], prefixes: tuple[str, ...]
    ) -> Generator[None, None, dict[str, bytes]]:
        """The states of these logs with these prefixes, from all buckets."""
        found: dict[str, bytes] = {}
        # An incarnation may contain a slash: the id of a topic is base64.
        lengths = {len(each) for each in incarnations}

        def is_of(key: str, begin: int) -> bool:
            return any(key[begin : begin + length] in incarnations for length in lengths)

        for bucket in range(BUCKETS):
            states = self._here.states(bucket)
            # A copy: they change between steps.
            keys = list(states)
            for first in range(0, len(keys), KEYS_A_STEP):
                for key in keys[first : first + KEYS_A_STEP]:
                    if key.startswith(prefixes) and is_of(key, key.index("/") + 1):
                        _take(found, states, key)
                yield None
        return found

    def _tables(
        self, values: Mapping[str, bytes]
    ) -> tuple[Mapping[str, StoredLog], Groups, KeptCursors, Writes]:
        states = BucketStates(values)
        writes, limits = Writes(states), self._limits
        groups = Groups(
            states, writes, self._settings, limits, lambda _log: NOWHERE, lambda _log, _change, _now_ms: None
        )
        cursors = KeptCursors(
            states, writes, cursors_max=limits.cursors, positions_max=limits.cursor_positions
        )
        return self._logs, groups, cursors, writes


def _bucket(key: CursorKey) -> int:
    claim = None if key.group is None else Claim(key.group, None, None, "")
    return bucket_of(key.incarnation, claim, key.container or "", key.link or "")


def _take(values: dict[str, bytes], states: Mapping[str, bytes], key: str) -> None:
    value = states.get(key)
    if value is not None:
        values[key] = value


def _show_members(groups: Groups, log: StoredLog, owned: Ownership, group: str) -> None:
    """Let the links of a group at its home have the same partitions in `groups`."""
    for link in owned.links(group) if group != UNNAMED else ():
        # A limit may be reached that counts all groups of a log, instead of those of one bucket.
        with suppress(PeerError):
            groups.claim(log, Claim(group, link.partition, None, link.member), 0)
