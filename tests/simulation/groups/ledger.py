"""What was reported to peers and what is on the disk, compared with each effect of the node.

Checked here: one owner for each partition and group; epochs never decrease; each link gets the records of its
partitions in order; a link that continues a cursor begins at the lowest unsettled record, or, after a crash,
no further back than the position on the disk.
"""

from collections import Counter
from dataclasses import dataclass, field

from amqp_streams.streams.attach import Consuming
from tests.amqp_streams.node import peer_links

Spot = tuple[str, int]
"""A cursor, by its group or its link, in one partition."""


@dataclass(eq=False)
class Link(peer_links.Link):
    """A consumer's link as both its ends see it."""

    @property
    def grant(self) -> Consuming:
        assert isinstance(self.answer, Consuming)
        return self.answer

    def spot(self, index: int) -> Spot:
        group = self.grant.group
        return (f"group {group}" if group else f"link {self.request.container} {self.request.link}", index)


@dataclass
class CursorState:
    """The state of one cursor.

    `position`: the lowest unsettled record. `beyond`: the settled records after it. `floor`: the minimum
    position on the disk. `done`: the highest position so far; a delivery below it is a repetition.
    """

    position: int
    floor: int
    done: int
    beyond: set[int] = field(default_factory=set)
    crashed: bool = False


class Ledger:
    """All that is known outside the node."""

    def __init__(self) -> None:
        self.cursors: dict[Spot, CursorState] = {}
        self.owners: dict[tuple[str, int], Link] = {}
        self.epochs: dict[tuple[str, int], int] = {}
        self.rising: dict[Spot, int] = {}
        self.repeated = Counter[Spot]()
        """Records delivered again that had been settled before: a crash lost that."""
        self.counts = {"granted": 0, "delivered": 0, "left": 0, "stolen": 0, "crashes": 0}

    def granted(self, link: Link) -> None:
        grant = link.grant
        self.counts["granted"] += 1
        link.next = dict(grant.reader.positions)
        if grant.group is not None:
            owned = grant.group, grant.partitions[0].index
            assert owned not in self.owners, f"two owners of {owned}"
            self.owners[owned] = link
            assert grant.epoch is not None
            assert grant.epoch >= self.epochs.get(owned, 0), f"the epoch of {owned} fell"
            self.epochs[owned] = grant.epoch
        for index, position in link.next.items():
            self._resumed(link.spot(index), position)

    def _resumed(self, spot: Spot, position: int) -> None:
        cursor = self.cursors.setdefault(spot, CursorState(position, position, position))
        if cursor.crashed:
            assert cursor.floor <= position <= cursor.position, f"{spot} is at {position}: {cursor}"
            self.cursors[spot] = CursorState(position, cursor.floor, cursor.done)
        else:
            assert position == cursor.position, f"{spot} is at {position}: {cursor}"

    def delivered(self, link: Link, index: int, first: int, count: int) -> None:
        assert link.alive, "a link that is gone gets nothing"
        assert not link.leaving, "a link that leaves gets nothing"
        if link.grant.group is not None:
            assert self.owners[link.grant.group, index] is link
        assert link.next[index] == first, "nothing is skipped or doubled on a link"
        link.next[index] = first + count
        link.unsettled.update(dict.fromkeys((index, number) for number in range(first, first + count)))
        self.counts["delivered"] += count
        self.repeated[link.spot(index)] += max(0, min(count, self.cursors[link.spot(index)].done - first))

    def settled(self, link: Link, index: int, number: int) -> None:
        del link.unsettled[index, number]
        if not link.alive:
            return
        cursor = self.cursors[link.spot(index)]
        cursor.beyond.add(number)
        while cursor.position in cursor.beyond:
            cursor.beyond.remove(cursor.position)
            cursor.position += 1
        cursor.done = max(cursor.done, cursor.position)

    def ended(self, link: Link) -> None:
        """Settlements beyond an unsettled record are forgotten when the link ends."""
        if not link.alive:
            return
        link.alive = False
        if isinstance(link.answer, Consuming):
            self.owners = {owned: owner for owned, owner in self.owners.items() if owner is not link}
            for index in link.next:
                cursor = self.cursors[link.spot(index)]
                cursor.beyond.clear()
                self.rising[link.spot(index)] = cursor.position

    def flushed(self) -> None:
        for spot, cursor in self.cursors.items():
            if not cursor.crashed:
                self.rising[spot] = cursor.position

    def written(self) -> None:
        """All that was on its way to the disk is there."""
        for spot, position in self.rising.items():
            self.cursors[spot].floor = position
        self.rising.clear()

    def crashed(self) -> None:
        self.counts["crashes"] += 1
        self.owners.clear()
        self.rising.clear()
        for cursor in self.cursors.values():
            cursor.crashed = True
            cursor.beyond.clear()
