"""Kept cursors and groups: each begins at the first unsettled event, and has one owner.

Checked here: a cursor never passes an event that no client settled; it does not go back while the process
runs; one link owns a partition of a group; epochs never decrease, also not through a crash.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from amqp_streams.server.links.consumer import ConsumerLink
from amqp_streams.server.links.link import AnyLink
from amqp_streams.streams.attach import Consuming
from tests.simulation.checks.ledger import Ledger

Spot = tuple[str, str, str, int]
"""A kept cursor in one partition: log, `group` or `link`, its name, partition."""


@dataclass
class CursorState:
    """`begin`: where it began. `granted`: where its last owner began, in this process."""

    begin: int
    granted: int
    settled: set[int] = field(default_factory=set)


class Cursors:
    """All kept cursors, as the clients know them."""

    def __init__(self, ledger: Ledger, soon: Callable[[Callable[[], None]], None]) -> None:
        self._soon = soon
        self.cursors: dict[Spot, CursorState] = {}
        self.owners: dict[tuple[str, str, int], ConsumerLink] = {}
        self.epochs: dict[tuple[str, str, int], int] = {}
        self.counts = {"granted": 0, "resumed": 0, "forgotten": 0}
        self._unsure: set[Spot] = set()
        """Clients asked for the deletion of these, and may have got no answer."""
        self._fresh: set[Spot] = set()
        """These are deleted, and no crash brings them back."""
        self._ledger = ledger

    def settled(self, spot: Spot, offset: int) -> None:
        """A client has settled an event. The settlement may never arrive."""
        self.cursors[spot].settled.add(offset)

    def forgetting(self, spots: Iterable[Spot]) -> None:
        """A client asks for the deletion of its cursor. The request may never arrive, or arrive late."""
        self._unsure.update(spots)

    def forgotten(self, spots: Iterable[Spot]) -> None:
        """The node has answered that the cursor is deleted."""
        for spot in spots:
            self.cursors.pop(spot, None)
            self._unsure.discard(spot)
            self._fresh.add(spot)
            self.counts["forgotten"] += 1

    def done(self, spot: Spot) -> int:
        """The first event that no client has settled."""
        cursor = self.cursors[spot]
        track = self._ledger.current[spot[0], spot[3]]
        at = max(cursor.begin, track.first)
        while at in cursor.settled:
            at += 1
        return at

    def attached(self, link: AnyLink) -> None:
        """The node has granted a link."""
        if not isinstance(link, ConsumerLink):
            return
        grant = link.grant
        if grant.group is not None:
            self._own(link)
        if grant.keeps and not grant.log.name.startswith("made-"):
            for index, position in grant.reader.positions.items():
                self._resumed(spot_of(grant, index), position)

    def _own(self, link: ConsumerLink) -> None:
        grant = link.grant
        self.counts["granted"] += 1
        for partition in grant.partitions:
            owned = grant.log.incarnation, grant.group or "", partition.index
            owner = self.owners.get(owned)
            if owner is not None:  # it ends in this turn, before anything is sent
                self._soon(partial(_require_gone, owner, owned))
            self.owners[owned] = link
            assert grant.epoch is not None
            assert grant.epoch >= self.epochs.get(owned, 0), f"the epoch of {owned} falls"
            self.epochs[owned] = grant.epoch

    def _resumed(self, spot: Spot, position: int) -> None:
        cursor = self.cursors.get(spot)
        self.counts["resumed"] += 1
        first = self._ledger.current[spot[0], spot[3]].first
        if spot in self._fresh:
            self._fresh.discard(spot)
            # Retention may have removed events since the attach: then they count as skipped.
            assert position <= first, f"{spot} is deleted, and goes on at {position} instead of {first}"
        if cursor is None or (spot in self._unsure and position == first):
            self.cursors[spot] = CursorState(position, position)
            return
        done = self.done(spot)
        assert position <= done, f"{spot} goes on at {position}, and {done} was not settled"
        assert position >= cursor.granted, f"{spot} goes back from {cursor.granted} to {position}"
        cursor.granted = position

    def died(self) -> None:
        """The process has ended: the events that were settled last may be delivered again."""
        self.owners.clear()
        for cursor in self.cursors.values():
            cursor.granted = cursor.begin


def _require_gone(link: ConsumerLink, owned: tuple[str, str, int]) -> None:
    assert not link.alive or link.closing, f"two owners of {owned}"


def spot_of(grant: Consuming, index: int) -> Spot:
    """The cursor of a grant in a partition."""
    if grant.group:
        return grant.log.name, "group", grant.group, index
    return grant.log.name, "link", f"{grant.request.container} {grant.request.link}", index
