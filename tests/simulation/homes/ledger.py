"""The laws of homes, checked by a view of everything at once that no node has.

Each law has a name, which begins the message of its failure:

owner: when a node asks whether it may send and may, no other node may send for the same group and partition,
and no earlier owner sends again after its successor; a write that followed a stop ends its link. epoch: the
epochs in the state topic, and those that consumers are told, never fall; none is told before it is there.
cursor: a cursor in the state topic never passes an event that no consumer settled, and never falls; a link
begins where its cursor allows, and not before what a consumer was told to be durable. fence: each home has a
greater term than those before it, and nothing is committed under an earlier term. shown: an owner that a list
or description shows was the last one to which a home had granted the partition, at a moment since the
question. progress: see `world.py`.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amqp_streams.homes.messages import Answer, Owns
from amqp_streams.homes.records import KEY, HomeRecord, decoded
from amqp_streams.streams.consuming.cursors import PREFIX as CURSOR
from amqp_streams.streams.consuming.cursors import group_key, link_key
from amqp_streams.streams.groups.claims import Wanted
from amqp_streams.streams.groups.epochs import PREFIX as EPOCH
from amqp_streams.streams.groups.epochs import epochs_prefix
from tests.simulation.homes.kafka import Transaction
from tests.simulation.homes.machines import Link

if TYPE_CHECKING:
    from tests.simulation.homes.world import World

Slot = tuple[str, int]


class LawError(AssertionError):
    """A law is broken."""


def check(law: str, holds: bool, words: str) -> None:
    if not holds:
        raise LawError(f"{law}: {words}")


def slot_of(link: Link, index: int) -> Slot:
    wanted = link.wanted
    if wanted.claim is None:
        return f"link {wanted.container} {wanted.link}", index
    return f"group {wanted.claim.group}", index


def cursor_of(link: Link) -> str:
    wanted = link.wanted
    if wanted.claim is None:
        return link_key(wanted.incarnation, wanted.container, wanted.link).state
    return group_key(wanted.incarnation, wanted.claim.group).state


@dataclass
class Settled:
    """What consumers have settled of one cursor and partition: everything below `below`, and `beyond`."""

    below: int
    beyond: set[int] = field(default_factory=set)


class Ledger:
    """See the module."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.counts: Counter[str] = Counter()
        self.on_removed: Callable[[str], object] = lambda _key: None
        self.may_be_new: Callable[[str], bool] = lambda _cursor: False
        """Whether a user may have removed this cursor since it was written last."""
        self.closes: list[tuple[float, Link]] = []
        self.cursors: dict[tuple[str, int], Settled] = {}
        self._links: dict[Slot, list[Link]] = {}
        self._sender: dict[Slot, Link] = {}
        self._former: dict[Slot, set[Link]] = {}
        self._told: dict[Slot, int] = {}
        self._epochs: dict[str, int] = {}
        self._stored: dict[tuple[str, int], int] = {}
        self._durable: dict[tuple[str, int], int] = {}
        self._terms: dict[int, HomeRecord] = {}
        self._transactions: dict[int, int] = {}
        self.numbered: dict[tuple[str, int], Wanted] = {}
        """What each link of a process asks for, by its number."""
        self._owners: dict[Slot, list[tuple[float, str]]] = {}
        """Since when homes have granted a partition of a group to a member."""

    # -- owners

    def granted(self, link: Link, epoch: int | None, positions: tuple[tuple[int, int], ...]) -> None:
        """A consumer's attach is answered."""
        self.counts["granted"] += 1
        reporting, now_ms = link.process.reporting, link.process.boot_ms()
        check(
            "owner", reporting.holds(link.number, now_ms), f"{link.wanted} is told of a grant that has ended"
        )
        for index, position in positions:
            slot = slot_of(link, index)
            links = self._links.setdefault(slot, [])
            for other in links:
                check("owner", not other.may_send(), f"{slot} is granted while {other.process.id} may send")
            links.append(link)
            if epoch is not None:
                check("epoch", epoch >= self._told.get(slot, 0), f"{slot} is told {epoch} after {self._told}")
                self._told[slot] = epoch
                key = f"{epochs_prefix(link.wanted.incarnation)}{index}/{slot[0].removeprefix('group ')}"
                check("epoch", self._epochs.get(key, 0) >= epoch, f"{slot} is told {epoch}, not yet written")
            if link.wanted.durable:
                self._begins(cursor_of(link), index, position)

    def _begins(self, cursor: str, index: int, position: int) -> None:
        check("cursor", (cursor, index) in self.cursors, f"{cursor} {index} is granted before it is written")
        below = self.cursors[cursor, index].below
        check("cursor", position <= below, f"{cursor} {index} begins at {position}, beyond {below}")
        told = self._durable.get((cursor, index), 0)
        check("cursor", position >= told, f"{cursor} {index} begins at {position}, durable is {told}")

    def checked(self, link: Link, index: int) -> None:
        """A node has asked whether it may send on this link, and may."""
        slot = slot_of(link, index)
        links = self._links[slot]
        for other in links:
            if other is not link and other.may_send():
                raise LawError(f"owner: {slot} has two: {link.process.id} and {other.process.id}")
        check("owner", link not in self._former.get(slot, ()), f"{slot}: an earlier owner sends again")
        sender = self._sender.get(slot)
        if sender is not link:
            if sender is not None:
                self._former.setdefault(slot, set()).add(sender)
            self._sender[slot] = link
            links[:] = [each for each in links if not each.over]

    def sent(self, link: Link, index: int, first: int, count: int, *, allowed: bool) -> None:
        """A write to a socket has ended. Not allowed: the process was stopped before the write."""
        self.counts["delivered"] += count
        if not allowed:
            self.counts["stopped in a write"] += 1
            check(
                "owner", link.over, f"{slot_of(link, index)} is open after a write without a grant: {first}"
            )

    def closed(self, link: Link) -> None:
        """The node has closed a link that was granted."""
        self.counts["closed"] += 1
        self.closes.append((self.world.schedule.now, link))

    # -- descriptions

    def replied(self, node: str, answer: Answer) -> None:
        """A home answers a node."""
        for verdict in answer.verdicts:
            wanted = self.numbered[node, verdict.number]
            if isinstance(verdict, Owns) and verdict.partition is not None and wanted.claim is not None:
                owners = self._owners.setdefault((f"group {wanted.claim.group}", verdict.partition), [])
                if not owners or owners[-1][1] != wanted.claim.member:
                    owners.append((self.world.schedule.now, wanted.claim.member))

    def shown(self, group: str, index: int, member: str, since: float) -> None:
        """A user who asked then is shown this owner, or a home shows it to another node now."""
        self.counts["shown"] += 1
        owners = self._owners.get((f"group {group}", index), [])
        allowed = [name for at, name in owners if at > since]
        allowed += [name for at, name in owners if at <= since][-1:]
        check("shown", member in allowed, f"{group} {index} shows {member}; since {since}: {owners[-3:]}")

    # -- cursors

    def settled(self, link: Link, index: int, first: int, count: int) -> None:
        """The node has taken a settlement of a link that lives."""
        self.counts["settled"] += count
        known = self.cursors.get((cursor_of(link), index)) if link.wanted.durable else None
        if known is not None:
            known.beyond.update(range(first, first + count))
            while known.below in known.beyond:
                known.beyond.discard(known.below)
                known.below += 1

    def confirmed(self, link: Link, positions: tuple[tuple[int, int], ...]) -> None:
        """A consumer learns that these positions are durable."""
        self.counts["confirmed"] += 1
        for index, position in positions:
            spot = cursor_of(link), index
            stored = self._stored.get(spot, -1)
            check("cursor", position <= stored, f"{spot} is told {position}, the topic has {stored}")
            self._durable[spot] = max(self._durable.get(spot, 0), position)

    # -- the state topic

    def decided(self, bucket: int, transaction: Transaction) -> None:
        """A transaction is committed, whether readers know it yet or not."""
        self.counts["committed"] += 1
        for changes in transaction.changes:
            for key, value in changes.items():
                if value is None:
                    self._removed(key)
                elif key == KEY:
                    self._home(bucket, transaction.epoch, decoded(value))
                elif key.startswith(EPOCH):
                    epoch = json.loads(value)["epoch"]
                    check("epoch", epoch >= self._epochs.get(key, 0), f"{key} falls to {epoch}")
                    self._epochs[key] = epoch
                elif key.startswith(CURSOR):
                    self._written(key, json.loads(value)["next"])
        check(
            "fence",
            transaction.epoch >= self._transactions.get(bucket, 0),
            "an earlier producer has committed",
        )
        self._transactions[bucket] = transaction.epoch

    def _removed(self, key: str) -> None:
        """A user has removed a group, or its log is gone."""
        self.counts["removed"] += 1
        self.on_removed(key)
        if key.startswith(EPOCH):
            self._epochs.pop(key, None)
            partition, _, group = key.removeprefix(EPOCH).partition("/")[2].partition("/")
            self._told.pop((f"group {group}", int(partition)), None)
        elif key.startswith(CURSOR):
            for slot, links in self._links.items():
                for link in links:
                    sends = cursor_of(link) == key and link.may_send()
                    check("change", not sends, f"{slot} is removed, and {link.process.id} may send")
            for known in (self.cursors, self._stored, self._durable):
                for spot in [each for each in known if each[0] == key]:
                    del known[spot]

    def _home(self, bucket: int, epoch: int, record: HomeRecord) -> None:
        before = self._terms.get(bucket)
        if before is not None and record.term <= before.term:
            same = record.term == before.term and record.node == before.node and not before.let_go
            check("fence", same, f"bucket {bucket}, epoch {epoch}: {record} follows {before}")
        else:
            self.counts["homes"] += 1
        self.counts["let go"] += record.let_go
        self._terms[bucket] = record

    def _written(self, cursor: str, positions: dict[str, int]) -> None:
        known = {index: each.below for (name, index), each in self.cursors.items() if name == cursor}
        beyond = any(positions.get(str(index), below + 1) > below for index, below in known.items())
        if beyond and self.may_be_new(cursor):
            # Removed and created in one transaction.
            self._removed(cursor)
        for index, position in positions.items():
            self._moved(cursor, int(index), position)

    def _moved(self, cursor: str, index: int, position: int) -> None:
        known = self.cursors.setdefault((cursor, index), Settled(position))
        check("cursor", position <= known.below, f"{cursor} {index} is {position}, settled is {known.below}")
        stored = self._stored.get((cursor, index), 0)
        check("cursor", position >= stored, f"{cursor} {index} falls from {stored} to {position}")
        self._stored[cursor, index] = position

    def stored(self, cursor: str, index: int) -> int:
        """The position in the state topic."""
        return self._stored.get((cursor, index), -1)
