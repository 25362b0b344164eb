"""Lists and descriptions of groups and cursors that have homes, at any node. Pure.

Each node follows the states of all buckets, so it knows which groups and cursors exist. Members, owners and
the positions of now are known to homes only: the node asks those of what is on the page. Of a group whose
home did not answer, it shows what it knows: the states that it has read, and the members with links here.

Law: a request looks at a bounded number of keys before the loop serves others.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from typing import Final, Protocol, TypeAlias

from amqp_streams import names
from amqp_streams.homes.buckets import BUCKETS, bucket_of
from amqp_streams.homes.describing import describing
from amqp_streams.homes.describing.inquiring import Inquiring, Search
from amqp_streams.homes.messages import Described, Subject
from amqp_streams.homes.owners import PREFIX as OWNER_PREFIX
from amqp_streams.homes.owners import owner_group
from amqp_streams.node.cursor_requests import (
    asked_log,
    asked_logs,
    described_cursor,
    described_group,
    missing,
)
from amqp_streams.node.requests import PAGE_PARTITIONS_MAX, RequestSteps
from amqp_streams.node.writes import Wait
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams import info, management
from amqp_streams.streams.consuming.cursors import PREFIX, Cursor, CursorKey, decoded, group_key
from amqp_streams.streams.groups import epochs
from amqp_streams.streams.groups.claims import UNNAMED, Claim
from amqp_streams.streams.management import Answer, Request
from amqp_streams.streams.steps import PARTITIONS_A_STEP, Steps
from amqp_streams.wire.types import Value

KEYS_A_STEP: Final = 2000
"""How many keys a request looks at in one step, in about a millisecond."""
DECODED: Final = 20
"""A key whose name or value is decoded counts as so many keys."""
_NOBODY: Final = "no node decides about it at the moment"

Links: TypeAlias = Callable[[], Iterable[tuple[str, Claim, int | None]]]
"""The claims of this node's links, with the incarnations of their logs and the partitions that they have."""
_Waits: TypeAlias = Generator[Wait | None, None, None]


class Here(describing.Here, Protocol):
    """What this node knows of buckets."""

    def states(self, bucket: int) -> Mapping[str, bytes]:
        """See `changes.Here.states`."""


@dataclass(slots=True)
class _Facts:
    """What is shown of a group or cursor. `reason`: why its home did not say it, if it did not."""

    cursor: Cursor | None
    exists: bool = True
    active: bool | None = None
    waiting: int = 0
    owners: dict[int, str] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    reason: str = ""

    def epoch(self, partition: int) -> int:
        """The recorded epoch; 0 if no epoch was recorded."""
        return self.epochs.get(partition, 0)

    def marked(self, described: dict[Value, Value]) -> dict[Value, Value]:
        """The map of the group or cursor, with the reason if its members are not known."""
        if not self.reason:
            return described
        return {**described, names.MEMBERS_KNOWN: False, names.MEMBERS_REASON: self.reason}


@dataclass(frozen=True, slots=True)
class _Item:
    """A group, or the cursor of `cursor`, on a page."""

    log: StoredLog
    subject: Subject
    cursor: Cursor | None = None

    @property
    def width(self) -> int:
        """Its number of partitions."""
        if self.subject.group is None and self.cursor is not None:
            return len(self.cursor.positions)
        return len(self.log.partitions)


_Row: TypeAlias = tuple[tuple[object, ...], _Item]
"""An item, and where it is in the order of a list."""


class Reading:
    """`logs`: of the store. `links`: of this node. `now_ms`: CLOCK_BOOTTIME."""

    def __init__(
        self,
        logs: Mapping[str, StoredLog],
        here: Here,
        links: Links,
        inquiring: Inquiring,
        now_ms: Callable[[], int],
    ) -> None:
        self._logs: Final = logs
        self._here: Final = here
        self._links: Final = links
        self._inquiring: Final = inquiring
        self._now_ms: Final = now_ms

    # -- one

    def read_group(self, request: Request, newer: bytes | None = None) -> RequestSteps:
        """One group. `newer`: the value of the cursor's state, which this node may not have read yet."""
        log, group = asked_log(self._logs, request), request.name
        words = f"log {log.name!r} has no consumer group {group[:64]!r}"
        if not group or group == UNNAMED or not request.permissions.sees_group(log.name, group):
            raise missing(request, words)
        item = _Item(log, Subject(_bucket(group_key(log.incarnation, group)), log.incarnation, group))
        facts = (yield from self._facts([item], request, newer))[item.subject]
        if not facts.exists:
            raise missing(request, words)
        return Answer(management.OK, "OK", (yield from _map(item, facts)))

    def read_cursor(self, request: Request, newer: bytes | None = None) -> RequestSteps:
        """One cursor. `newer`: see `read_group`."""
        log = asked_log(self._logs, request)
        state = f"{PREFIX}{log.incarnation}/{request.name}"
        buckets = [self._here.states(bucket).get(state) for bucket in range(BUCKETS)]
        value = newer or next(filter(None, buckets), None)
        cursor = None if value is None else decoded(state, value)
        # One error for both, so that ids cannot be tried.
        if cursor is not None and _visible(request, log, cursor):
            item = _of_cursor(log, cursor)
            facts = (yield from self._facts([item], request, newer))[item.subject]
            if facts.exists:
                return Answer(management.OK, "OK", (yield from _map(item, facts)))
        raise missing(request, f"log {log.name!r} has no cursor {request.name[:64]!r}")

    # -- all

    def query_groups(self, request: Request) -> RequestSteps:
        """All groups, or those of one log, that the user may see."""
        logs = {log.incarnation: log for log in asked_logs(self._logs, request)}
        rows: list[dict[tuple[object, ...], _Item]] = [{} for _ in range(BUCKETS)]
        unsure: set[int] = set()
        for bucket in range(BUCKETS):
            yield from self._gather_groups(logs, bucket, rows[bucket], unsure)
        incomplete = yield from self._name_others(request, logs, rows, unsure)

        def visible(item: _Item) -> bool:
            return request.permissions.sees_group(item.log.name, item.subject.group or "")

        lists = [each.items() for each in rows]
        return (yield from self._listed(names.GROUPS, request, lists, visible, incomplete))

    def query_cursors(self, request: Request) -> RequestSteps:
        """All cursors, or those of one log, that the user may see."""
        logs = {log.incarnation: log for log in asked_logs(self._logs, request)}
        rows: list[list[_Row]] = []
        for bucket in range(BUCKETS):
            found: list[_Row] = []
            for log, state, value in self._keys(logs, bucket, (PREFIX,)):
                if log is None:
                    yield None
                    continue
                cursor = decoded(state, value)
                key = cursor.key
                order = log.name, key.group is None, key.group or "", key.container or "", key.link or ""
                found.append((order, _of_cursor(log, cursor)))
            rows.append(found)

        def visible(item: _Item) -> bool:
            return item.cursor is not None and _visible(request, item.log, item.cursor)

        return (yield from self._listed(names.CURSORS, request, rows, visible, ()))

    # -- private

    def _keys(
        self, logs: Mapping[str, StoredLog], bucket: int, prefixes: tuple[str, ...]
    ) -> Iterator[tuple[StoredLog | None, str, bytes]]:
        """The states of these logs with these prefixes. Without a log: the caller pauses."""
        # An incarnation may contain a slash: the id of a topic is base64.
        lengths = {len(each) for each in logs}
        states, since = self._here.states(bucket), 0
        # A copy: they change between steps.
        for key in list(states):
            since += 1
            if key.startswith(prefixes):
                begin = key.index("/") + 1
                log = next((logs[each] for n in lengths if (each := key[begin : begin + n]) in logs), None)
                value = states.get(key)
                if log is not None and value is not None:
                    since += DECODED
                    yield log, key, value
            if since >= KEYS_A_STEP:
                since = 0
                yield None, "", b""
        yield None, "", b""

    def _gather_groups(
        self,
        logs: Mapping[str, StoredLog],
        bucket: int,
        rows: dict[tuple[object, ...], _Item],
        unsure: set[int],
    ) -> _Waits:
        """Take the groups of a bucket that have states. It is unsure if others may have links."""
        owned: set[tuple[str, str]] = set()
        for log, key, value in self._keys(logs, bucket, (PREFIX, epochs.PREFIX, OWNER_PREFIX)):
            if log is None:
                yield None
            elif key.startswith(OWNER_PREFIX):
                group = owner_group(key)
                if group is not None:
                    owned.add((log.incarnation, group))
            else:
                name = decoded(key, value).key.group if key.startswith(PREFIX) else epochs.epoch_group(key)[1]
                if name:  # neither None nor `UNNAMED`
                    rows[log.name, name] = _Item(log, Subject(bucket, log.incarnation, name))
        if any(group and (logs[incarnation].name, group) not in rows for incarnation, group in owned):
            unsure.add(bucket)

    def _name_others(
        self,
        request: Request,
        logs: Mapping[str, StoredLog],
        rows: Sequence[dict[tuple[object, ...], _Item]],
        unsure: set[int],
    ) -> Generator[Wait | None, None, tuple[str, ...]]:
        """Add groups without states. Returns why some may be missing."""

        def add(bucket: int, incarnation: str, group: str) -> None:
            log = logs.get(incarnation)
            if log is not None and group:
                item = _Item(log, Subject(bucket, incarnation, group))
                rows[bucket].setdefault((log.name, group), item)

        elsewhere = {bucket for bucket in unsure if self._here.current(bucket) is None}
        search = yield from self._search((), elsewhere, request)
        for each in (named for bucket in elsewhere for named in search.named.get(bucket, ())):
            add(each.bucket, each.incarnation, each.group)
        reasons = dict(search.reasons)
        for bucket in range(BUCKETS):
            serving = self._here.current(bucket)
            if serving is not None:
                for named in (yield from describing.names(serving, logs.get, bucket)):
                    add(bucket, named.incarnation, named.group)
            elif bucket in unsure and bucket not in search.named:
                reasons.setdefault(bucket, _NOBODY)
        for incarnation, claim, _ in list(self._links()) if reasons else ():
            add(_bucket(group_key(incarnation, claim.group)), incarnation, claim.group)
        yield None
        return tuple(dict.fromkeys(reasons[bucket] for bucket in sorted(reasons)))

    def _search(
        self, subjects: Sequence[Subject], unnamed: Collection[int], request: Request
    ) -> Generator[Wait, None, Search]:
        if not subjects and not unnamed:
            return Search(None, None, 0, {}, set())
        user, now_ms = request.permissions.identity.user, self._now_ms()
        search = self._inquiring.begin(subjects, unnamed, request.connection, user=user, now_ms=now_ms)
        try:
            if not search.over.over:
                yield search.over
        finally:
            self._inquiring.forget(search)
        return search

    def _facts(
        self, items: Sequence[_Item], request: Request, newer: bytes | None = None
    ) -> Generator[Wait | None, None, dict[Subject, _Facts]]:
        """What homes know of these items; of the rest, what this node knows."""
        elsewhere = [each.subject for each in items if self._here.current(each.subject.bucket) is None]
        search = yield from self._search(elsewhere, (), request)
        own: dict[Subject, list[tuple[Claim, int | None]]] | None = None
        found: dict[Subject, _Facts] = {}
        since = 0
        for item in items:
            subject, described = item.subject, search.found.get(item.subject)
            serving = self._here.current(subject.bucket)
            if described is None and serving is not None:
                described = describing.described(serving, item.log, subject)
            if described is not None:
                found[subject] = _of_home(item, described)
            else:
                if own is None:
                    own = self._own()
                reason = search.reasons.get(subject.bucket, _NOBODY)
                found[subject] = self._of_states(item, own.get(subject, ()), reason, newer)
            since += item.width
            if since >= PARTITIONS_A_STEP:
                since = 0
                yield None
        return found

    def _own(self) -> dict[Subject, list[tuple[Claim, int | None]]]:
        """The links of this node, by group."""
        found: dict[Subject, list[tuple[Claim, int | None]]] = {}
        for incarnation, claim, partition in self._links():
            subject = Subject(_bucket(group_key(incarnation, claim.group)), incarnation, claim.group)
            found.setdefault(subject, []).append((claim, partition))
        return found

    def _of_states(
        self, item: _Item, own: Iterable[tuple[Claim, int | None]], reason: str, newer: bytes | None
    ) -> _Facts:
        """What this node knows. `own`: its links in the group."""
        log, states, group = item.log, self._here.states(item.subject.bucket), item.subject.group
        if group is None:
            return _Facts(item.cursor, reason=reason)
        state = group_key(log.incarnation, group).state
        value = newer or states.get(state)
        facts = _Facts(None if value is None else decoded(state, value), reason=reason)
        keys = [f"{epochs.epochs_prefix(log.incarnation)}{each.index}/{group}" for each in log.partitions]
        read = epochs.read_epochs(log.incarnation, [(each, states[each]) for each in keys if each in states])
        facts.epochs = {index: epoch for (_, index), epoch in read.items()}
        for claim, partition in own:
            if partition is None:
                facts.waiting += 1
            else:
                facts.owners[partition] = claim.member
        facts.exists = bool(facts.cursor or read or facts.owners or facts.waiting)
        return facts

    def _listed(
        self,
        name: str,
        request: Request,
        rows: Sequence[Iterable[_Row]],
        visible: Callable[[_Item], bool],
        incomplete: Sequence[str],
    ) -> RequestSteps:
        at, more = request.offset, True
        described: list[Value] = []
        # A page of which nothing exists any more would end the list for its client.
        while more and not described:
            page, more = yield from _page(replace(request, offset=at), rows, visible)
            at += len(page)
            described = yield from self._maps(page, request)
        body: dict[Value, Value] = {name: described}
        if more:
            body[names.QUERY_NEXT] = at
        if incomplete:
            body[names.QUERY_INCOMPLETE] = list(incomplete)
        return Answer(management.OK, "OK", body)

    def _maps(self, page: Sequence[_Item], request: Request) -> Generator[Wait | None, None, list[Value]]:
        """The maps of the items of a page, without those that do not exist any more."""
        facts = yield from self._facts(page, request)
        described: list[Value] = []
        since = 0
        for item in page:
            if facts[item.subject].exists:
                described.append(info.encoded((yield from _map(item, facts[item.subject]))))
            since += item.width + 1
            if since >= PARTITIONS_A_STEP:
                since = 0
                yield None
        return described


def _page(
    request: Request, rows: Sequence[Iterable[_Row]], visible: Callable[[_Item], bool]
) -> Steps[tuple[list[_Item], bool]]:
    """The items on the page of a request, as `requests.listed` chooses them, and whether others follow."""
    ordered: list[list[_Row]] = []
    for each in rows:
        ordered.append(sorted(each, key=lambda row: row[0]))
        yield
    page: list[_Item] = []
    seen = wide = 0
    more = False
    for looked, (_, item) in enumerate(merge(*ordered, key=lambda row: row[0]), 1):
        if visible(item):
            seen += 1
            if seen > request.offset:
                wide += item.width
                full = request.count is not None and len(page) >= request.count
                if full or (page and wide > PAGE_PARTITIONS_MAX):
                    more = True
                    break
                page.append(item)
        if looked % (KEYS_A_STEP // DECODED) == 0:
            yield
    # An empty list would show the user that the log exists.
    if request.log and not seen and not request.permissions.sees(request.log):
        raise missing(request, "")
    return page, more


def _map(item: _Item, facts: _Facts) -> Steps[dict[Value, Value]]:
    log, group = item.log, item.subject.group
    if group is not None:
        made = described_group(log, group, facts.cursor, facts.epoch, facts.owners, facts.waiting)
        return facts.marked((yield from made))
    cursor = facts.cursor or item.cursor
    assert cursor is not None, "an item without a group has a cursor"
    members = {index: member for index, member in facts.owners.items() if index in cursor.positions}
    return facts.marked((yield from described_cursor(log, cursor, facts.epoch, members, active=facts.active)))


def _of_home(item: _Item, described: Described) -> _Facts:
    """What the home says. It may know another number of partitions: no more are shown than the log has."""
    key, kept = item.cursor.key if item.cursor is not None else None, described.kept
    if key is None and item.subject.group is not None:
        key = group_key(item.log.incarnation, item.subject.group)
    cursor: Cursor | None = None
    if kept is not None and key is not None:
        positions = {index: at for index, at in kept.positions if index < len(item.log.partitions)}
        cursor = Cursor(key, kept.user, positions, kept.updated_ms)
    return _Facts(
        cursor,
        described.exists,
        described.active,
        described.waiting,
        dict(described.owners),
        dict(described.epochs),
    )


def _of_cursor(log: StoredLog, cursor: Cursor) -> _Item:
    return _Item(log, Subject(_bucket(cursor.key), log.incarnation, None, cursor.id), cursor)


def _visible(request: Request, log: StoredLog, cursor: Cursor) -> bool:
    return request.permissions.sees_cursor(log.name, cursor.key.group, cursor.user)


def _bucket(key: CursorKey) -> int:
    claim = None if key.group is None else Claim(key.group, None, None, "")
    return bucket_of(key.incarnation, claim, key.container or "", key.link or "")
