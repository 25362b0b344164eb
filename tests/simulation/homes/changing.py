"""Runs in which users list groups and remove one at any node, nodes are upgraded one by one, and the log is
deleted.

Laws, besides those of `ledger.py`: a group is removed only while no node may send for it. An answer that says
that the group was removed, or that nothing was changed, is true. Each question is answered in bounded time.
A list that says that it knows the members of a group shows only owners that homes have granted.
The states of a log are removed if it is gone, and only then.
"""

from collections.abc import Callable
from typing import Any

from amqp_streams import names
from amqp_streams.homes.buckets import bucket_of
from amqp_streams.homes.changing.asking import WITHIN_MS
from amqp_streams.homes.messages import Asked, Change, Outcome
from amqp_streams.homes.records import KEY
from amqp_streams.streams.consuming.cursors import group_key
from amqp_streams.streams.groups.claims import Claim
from amqp_streams.streams.management import IN_DOUBT, NO_CONTENT, SERVER_ERROR, Answer, Request
from tests.amqp_streams.homes.kept_stage import plain
from tests.simulation.homes.kafka import Transaction
from tests.simulation.homes.ledger import check
from tests.simulation.homes.nodes import Process
from tests.simulation.homes.operators import TIMES
from tests.simulation.homes.peers import INCARNATION, Peer
from tests.simulation.homes.world import World

RIGHTS = frozenset({"manage", "receive"})
ROLL_MS = 6000
GROUP = next(
    name
    for name in (f"removed-{number}" for number in range(1000))
    if bucket_of(INCARNATION, Claim(name, None, None, ""), "", "") == 0
)
"""The group that users remove. The product checks that it is in its bucket, which each world has."""
CURSOR = group_key(INCARNATION, GROUP).state


def owners_in(group: dict[str, Any]) -> tuple[object, ...]:
    """What each node must show alike of a group: whether its members are known, and the owners."""
    owners = [(each[names.CURSOR_MEMBER], each[names.CURSOR_EPOCH]) for each in group[names.INFO_PARTITIONS]]
    return names.MEMBERS_KNOWN not in group, group[names.NAME], owners


class ChangingWorld(World):
    """`rolls`: the nodes are of an earlier version, and are upgraded one by one."""

    operates = True

    def __init__(self, seed: int, *, stories: bool = False, rolls: bool = False) -> None:
        self.rolls = rolls
        self.behind = 0.0
        """How many descriptions of all topics come from a broker that is behind."""
        self.topics = frozenset({INCARNATION})
        self.unknowing: frozenset[str] = frozenset()
        """Machines whose nodes do not have the log."""
        self.older = frozenset("abc") if rolls else frozenset()
        self.removed = self.written = 0
        """How often the cursor of the group was removed, and how often it was written or removed."""
        self.doubtful = False
        """A question was not answered, or is in doubt: its change may come at any time."""
        self._asked: tuple[float, Process] | None = None
        self._lists: list[tuple[float, Process]] = []
        """Lists that are not answered."""
        super().__init__(seed, stories=stories)
        self.ledger.on_removed = self._removed
        self.kafka.on_decided = self._decided
        self.ledger.may_be_new = lambda cursor: cursor == CURSOR and bool(self._asked or self.doubtful)
        if self.random.random() < 0.5:
            self.unknowing = frozenset({self.random.choice(sorted(self.machines))})
        else:
            self.behind = self.random.choice((0.0, 0.5))

    def _add_peers(self) -> None:
        super()._add_peers()
        self.peers += [Peer(self, f"{GROUP}-{number}", GROUP) for number in range(len(self.indices))]

    def bucket_of_group(self) -> int:
        return 0

    # -- the run

    def _begin_misfortunes(self, storm: float) -> None:
        self._every(600, self._ask, storm)
        self._every(3000, self._leave, storm)
        self._every(150, self._list, storm)
        if self.rolls:
            self._roll(storm)
        else:
            super()._begin_misfortunes(storm)

    def _roll(self, storm: float) -> None:
        """Stop each node in order, and start the later version."""
        for number, machine in enumerate(self.machines.values(), 1):

            def upgrade(machine=machine) -> None:  # type: ignore[no-untyped-def]
                self.older -= {machine.name}
                if machine.process is not None:
                    machine.process.terminate()
                self.schedule.after(4200, lambda: self._start(machine))

            self.schedule.after(number * min(ROLL_MS, storm / 4), upgrade)

    def run(self) -> None:
        super().run()
        self._check_answered()
        self._check_listed()
        self._delete()

    def _leave(self) -> None:
        """All members leave for a while: only then the group can be removed."""
        for peer in self.peers:
            if peer.group == GROUP:
                peer.leave(0)
                self.schedule.after(self.random.choice((50, 1500, 3000)), peer.attach)

    # -- the user

    def _ask(self) -> None:
        if self._asked is not None and not self._asked[1].alive:
            self._asked, self.doubtful = None, True
        nodes = [each for each in self.processes() if not each.terminating and not each.older]
        if self._asked is not None or not nodes:
            return
        process, before = self.random.choice(nodes), (self.removed, self.written)
        operating = process.operating
        assert operating is not None
        asked = Asked(0, 0, Change.REMOVE, names.GROUP_TYPE, INCARNATION, GROUP, None, None, None, RIGHTS)
        self._asked = self.schedule.now, process
        process.do(
            lambda: operating.drive(
                operating.changes.change(asked), lambda outcome: self._answered(outcome, before, process)
            )
        )

    def _list(self) -> None:
        """List all groups at any node."""
        nodes = [each for each in self.processes() if not each.terminating and not each.older]
        if nodes:
            self._list_at(self.random.choice(nodes), lambda _groups: None)

    def _check_listed(self) -> None:
        """All homes decide again: each node shows the same owners of the same groups.

        A home that does not have the log describes nothing.
        """
        if self.unknowing:
            return
        # The node that stopped in order has ended.
        self.schedule.run(self.schedule.now + 4500)
        shown: list[list[tuple[object, ...]]] = []
        nodes = self.processes()
        for process in nodes:
            self._list_at(process, lambda groups: shown.append(list(map(owners_in, groups))))
        self.schedule.run(self.schedule.now + 100)
        check("shown", len(shown) == len(nodes), "a list is not answered in the calm")
        check("shown", all(each == shown[0] for each in shown), f"lists differ: {shown}")
        for known, *_ in (group for groups in shown for group in groups):
            check("shown", bool(known), f"members are not known in the calm: {shown}")
            self.ledger.counts["listed at the end"] += 1

    def _list_at(self, process: Process, then: Callable[[list[dict[str, Any]]], object]) -> None:
        since = self.schedule.now
        operating = process.operating
        assert operating is not None
        request = Request("QUERY", names.GROUP_TYPE, "", {}, None, None, connection=1)
        began = since, process
        self._lists.append(began)

        def listed(answer: Answer) -> None:
            self._lists.remove(began)
            groups = plain(answer.body)[names.GROUPS]
            then(groups)
            for group in groups:
                known = names.MEMBERS_KNOWN not in group
                self.ledger.counts["listed" if known else "listed in part"] += 1
                for entry in group[names.INFO_PARTITIONS] if known else ():
                    if entry[names.CURSOR_MEMBER] is not None:
                        index, member = int(entry[names.INFO_PARTITION]), entry[names.CURSOR_MEMBER]
                        self.ledger.shown(group[names.NAME], index, member, since)

        process.do(lambda: operating.drive(operating.reading.query_groups(request), listed))

    def _answered(self, outcome: Outcome, before: tuple[int, int], process: Process) -> None:
        if self._asked is None or self._asked[1] is not process:
            return
        self._asked = None
        self.tell(f"answer {outcome}")
        self.ledger.counts[f"asked {outcome.status}"] += 1
        if outcome.status == NO_CONTENT:
            # A transaction that removes it and creates it again shows the second only.
            gone = CURSOR not in self.kafka.partitions[0].values or self.written > before[1]
            check("change", gone or self.doubtful, f"{outcome}, and nothing was removed")
        elif outcome.status in {SERVER_ERROR, IN_DOUBT}:
            self.doubtful = True
        elif not self.doubtful:
            check("change", self.removed == before[0], f"{outcome}, and the group was removed")

    def _check_answered(self) -> None:
        """No process stands still any more."""
        if self._asked is not None and self._asked[1].alive:
            took = self.schedule.now - self._asked[0]
            check("change", took < 2 * WITHIN_MS + 1000, f"a question is not answered after {took} ms")
        slow = [since for since, process in self._lists if process.alive]
        check("shown", not slow, f"lists since {slow} are not answered")

    # -- the log

    def _decided(self, bucket: int, transaction: Transaction) -> None:
        self.written += any(CURSOR in changes for changes in transaction.changes)
        self.ledger.decided(bucket, transaction)

    def _removed(self, key: str) -> None:
        self.removed += key == CURSOR
        allowed = GROUP in key or key == CURSOR or not self.topics
        check("change", allowed, f"{key} is removed, and its log exists")

    def _delete(self) -> None:
        """The log is deleted. Its states go when the nodes have noticed it."""
        self.topics = frozenset()
        for peer in self.peers:
            peer.alive = False
            peer.leave(0)
        self.logs.clear()
        self.schedule.run(self.schedule.now + 3 * TIMES.gone_ms + 20 * TIMES.sweep_ms + 6000)
        left = [key for partition in self.kafka.partitions for key in partition.values if key != KEY]
        check("change", not left, f"{left} are left of a deleted log")
