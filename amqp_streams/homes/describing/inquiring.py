"""What this node asks homes at other nodes about groups and cursors. Pure.

A `Search` is what one request of a user needs. It becomes one inquiry for each node that is a home of its
buckets. What a home does not describe is asked for again: the bucket has moved, or the answer had no room.

Laws: each search ends after `WITHIN_MS` at the latest; what was not described until then has a reason. A
home that does not answer costs only what it is the home of. All bounds are of what is open.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Protocol

from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.homes.messages import Described, Description, Inquiry, Named, Subject
from amqp_streams.homes.protocol.descriptions import SUBJECTS_MAX
from amqp_streams.homes.records import HomeRecord
from amqp_streams.node.writes import Wait

WITHIN_MS: Final = 2000
"""How long a search may take. A home that leaves in order has a successor within a second."""
UNREACHED_MS: Final = 300
"""How long an inquiry waits for a home that was not reached, or has not answered, before."""
AGAIN_MS: Final = 200
"""The pause before a home is asked again that has described nothing."""
OPEN_MAX: Final = 64
"""The most searches of this node."""
OPEN_A_USER_MAX: Final = OPEN_MAX // 2
"""The most searches of one user: the others are left to other users."""
OPEN_A_CONNECTION_MAX: Final = 8
"""The most searches of one connection. They are carried out one after the other."""
OPEN_A_HOME_MAX: Final = 4
"""The most inquiries to one address. Further ones wait."""
OUTCOMES: Final = ("described", "in part", "refused")
"""How a search can end, for operators."""


class Ways(Protocol):
    """How inquiries reach other nodes."""

    def record(self, bucket: int) -> HomeRecord | None:
        """The home of a bucket, as the state topic says."""

    def is_current(self, bucket: int) -> bool:
        """Whether the home is here, and knows who owns what."""

    def inquire(self, address: str, inquiry: Inquiry) -> bool:
        """Send an inquiry. False: the address is this node's own."""

    def forget_inquiry(self, address: str, number: int) -> None:
        """Do not send an inquiry that still waits for the connection."""

    def unreached(self, address: str) -> str | None:
        """Why the node at this address is not connected, after an attempt."""


@dataclass(slots=True, eq=False)
class Search:
    """What one request needs. `over`: ends when each bucket is described, is here, or has a reason.

    `found`: by subject. `named`: by bucket, the groups that its home named. `reasons`: by bucket, why it was
    not described, or not all of it.
    """

    connection: Hashable
    user: str | None
    until_ms: int
    left: dict[int, dict[Subject, None]]
    unnamed: set[int]
    over: Wait = field(default_factory=Wait)
    found: dict[Subject, Described] = field(default_factory=dict)
    named: dict[int, list[Named]] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    again_ms: dict[int, int] = field(default_factory=dict)

    def buckets(self) -> set[int]:
        """The buckets of which something is missing."""
        return self.left.keys() | self.unnamed

    def give_up(self, buckets: Iterable[int], reason: str) -> None:
        """Expect no more of these buckets."""
        for bucket in buckets:
            if bucket in self.buckets():
                self.reasons[bucket] = reason
            self.drop(bucket)

    def drop(self, bucket: int) -> None:
        """Expect no more of this bucket."""
        self.left.pop(bucket, None)
        self.unnamed.discard(bucket)


@dataclass(slots=True, eq=False)
class _Open:
    """An inquiry that was given to a connection."""

    search: Search
    address: str
    inquiry: Inquiry
    buckets: frozenset[int]
    began_ms: int


class Inquiring:
    """`node`: the id of this process."""

    def __init__(self, node: str, ways: Ways) -> None:
        self._node: Final = node
        self._ways: Final = ways
        self._numbers: Final = count(1)
        self._now_ms = 0
        self._searches: Final[dict[Search, None]] = {}
        self._open: Final[dict[int, _Open]] = {}
        self._silent: Final[set[str]] = set()
        """Homes that have not answered in time, until they answer: at most as many as are homes."""
        self.outcomes: Final = dict.fromkeys(OUTCOMES, 0)
        """How many searches ended, by outcome."""

    def __len__(self) -> int:
        return len(self._searches)

    def begin(
        self,
        subjects: Iterable[Subject],
        unnamed: Iterable[int],
        connection: Hashable,
        *,
        user: str | None,
        now_ms: int,
    ) -> Search:
        """Let homes describe these subjects, and name the groups of these buckets."""
        self._now_ms = now_ms
        left: dict[int, dict[Subject, None]] = {}
        for subject in subjects:
            left.setdefault(subject.bucket, {})[subject] = None
        search = Search(connection, user, now_ms + WITHIN_MS, left, set(unnamed))
        bounds = (
            (OPEN_MAX, len(self._searches)),
            (OPEN_A_USER_MAX, sum(each.user == user for each in self._searches)),
            (OPEN_A_CONNECTION_MAX, sum(each.connection == connection for each in self._searches)),
        )
        reached = next((most for most, count in bounds if count >= most), None)
        if reached is not None:
            reason = f"more than {reached} requests wait for nodes that know the members"
            search.give_up(search.buckets(), reason)
            search.over.ended(None, 0)
            self.outcomes["refused"] += 1
            return search
        self._searches[search] = None
        self._advance()
        return search

    def forget(self, search: Search) -> None:
        """The answer is not needed any more."""
        if search not in self._searches:
            return
        del self._searches[search]
        for number, each in list(self._open.items()):
            if each.search is search:
                del self._open[number]
                self._ways.forget_inquiry(each.address, number)

    # -- from the connections

    def answered(self, address: str, description: Description) -> None:
        """The node at this address has answered."""
        self._silent.discard(address)
        found = self._take(address, description.number)
        if found is None:
            return
        search, helped = found.search, set(description.named)
        for bucket in helped:
            search.named[bucket] = []
        for item in description.items:
            if isinstance(item, Named):
                search.named.get(item.bucket, []).append(item)
            elif item.at < len(found.inquiry.subjects):
                subject = found.inquiry.subjects[item.at]
                search.found[subject] = item
                search.left.get(subject.bucket, {}).pop(subject, None)
                helped.add(subject.bucket)
        for bucket in found.buckets:
            if bucket in description.named:
                search.unnamed.discard(bucket)
            if not search.left.get(bucket, True):
                del search.left[bucket]
            if bucket not in helped:
                search.again_ms[bucket] = self._now_ms + AGAIN_MS
        self._advance()

    def lost(self, address: str, number: int) -> None:
        """The connection on which the inquiry was sent has ended."""
        self._silent.discard(address)
        found = self._take(address, number)
        for bucket in () if found is None else found.buckets:
            assert found is not None
            found.search.again_ms[bucket] = self._now_ms + AGAIN_MS

    def not_taken(self, address: str, number: int) -> None:
        """The node at this address is of a version that takes no inquiries."""
        found = self._take(address, number)
        if found is not None:
            found.search.give_up(found.buckets, f"the home {address} is of an earlier version: upgrade it")

    def tick(self, now_ms: int) -> None:
        """Called several times a second."""
        self._now_ms = now_ms
        for number, each in list(self._open.items()):
            reason = self._hindrance(each.address)
            if reason is not None and now_ms >= each.began_ms + UNREACHED_MS:
                del self._open[number]
                self._ways.forget_inquiry(each.address, number)
                each.search.give_up(each.buckets, reason)
        if self._silent:
            homes = (self._ways.record(bucket) for bucket in range(BUCKETS))
            self._silent.intersection_update(each.address for each in homes if each is not None)
        for search in [each for each in self._searches if now_ms >= each.until_ms]:
            self._expire(search)
        self._advance()

    # -- private

    def _take(self, address: str, number: int) -> _Open | None:
        found = self._open.get(number)
        if found is None or found.address != address:
            return None
        del self._open[number]
        return found

    def _advance(self) -> None:
        """Send what can be sent, for the first search of each connection, and end searches."""
        busy = Counter(each.address for each in self._open.values())
        asked: dict[Search, set[int]] = {}
        for each in self._open.values():
            asked.setdefault(each.search, set()).update(each.buckets)
        served: set[Hashable] = set()
        for search in list(self._searches):
            if search.connection in served:
                continue
            served.add(search.connection)
            for address, buckets in self._homes(search, asked.get(search, set())).items():
                if busy[address] < OPEN_A_HOME_MAX and self._send(search, address, buckets):
                    busy[address] += 1
            if not search.buckets():
                served.discard(search.connection)
                self._end(search, "in part" if search.reasons else "described")

    def _homes(self, search: Search, asked: set[int]) -> dict[str, list[int]]:
        """The buckets of a search that can be asked for, by the addresses of their homes."""
        found: dict[str, list[int]] = {}
        for bucket in sorted(search.buckets() - asked):
            if self._ways.is_current(bucket):
                search.drop(bucket)
                continue
            record = self._ways.record(bucket)
            waits = self._now_ms < search.again_ms.get(bucket, 0)
            if record is not None and not record.let_go and record.node != self._node and not waits:
                found.setdefault(record.address, []).append(bucket)
        return found

    def _send(self, search: Search, address: str, buckets: list[int]) -> bool:
        subjects = [subject for bucket in buckets for subject in search.left.get(bucket, ())]
        named = tuple(bucket for bucket in buckets if bucket in search.unnamed)
        inquiry = Inquiry(next(self._numbers), tuple(subjects[:SUBJECTS_MAX]), named)
        self._open[inquiry.number] = _Open(search, address, inquiry, frozenset(buckets), self._now_ms)
        if self._ways.inquire(address, inquiry):
            return True
        self._open.pop(inquiry.number, None)
        return False

    def _expire(self, search: Search) -> None:
        asked = {
            bucket: each for each in self._open.values() if each.search is search for bucket in each.buckets
        }
        for bucket in search.buckets():
            record, sent = self._ways.record(bucket), asked.get(bucket)
            if sent is not None:
                self._silent.add(sent.address)
                reason = self._hindrance(sent.address) or ""
            elif record is None or record.let_go or record.node == self._node:
                reason = "no node decides about it at the moment"
            else:
                reason = f"the home {record.address} did not describe it in {WITHIN_MS // 1000} s"
            search.give_up([bucket], reason)
        self._end(search, "in part")

    def _hindrance(self, address: str) -> str | None:
        """Why no answer of this home is expected soon."""
        problem = self._ways.unreached(address)
        if problem is not None:
            return f"the home {address} is not reached: {problem}"
        silent = f"the home {address} did not answer in {WITHIN_MS // 1000} s"
        return silent if address in self._silent else None

    def _end(self, search: Search, outcome: str) -> None:
        self.forget(search)
        self.outcomes[outcome] += 1
        search.over.ended(None, 0)
