"""Grants that may still be in force although their links have lost the partition, and who waits. Pure.

Law: a link that waits here is ready when the node of each earlier owner has reported that the owner has
stopped, or when the grant is over.
"""

from collections.abc import Callable, Container
from typing import Final, TypeAlias

from amqp_streams.homes.sessions import Claimant, State

Slot: TypeAlias = tuple[str, str | None, str, int]
"""What one link owns at a time: incarnation, group and partition, or incarnation, container and link."""


class Barriers:
    """`ready`: called with a link that waits no more."""

    def __init__(self, ready: Callable[[Claimant], None]) -> None:
        self._ready: Final = ready
        self._until: Final[dict[Slot, dict[tuple[str, int], int]]] = {}
        self._barred: Final[dict[Slot, Claimant]] = {}

    @property
    def nodes(self) -> set[str]:
        """The nodes of the earlier owners."""
        return {node for until in self._until.values() for node, _ in until}

    def add(self, claimant: Claimant, until_ms: int) -> None:
        """This link has lost its partition, and its grant ends then."""
        self._until.setdefault(slot(claimant), {})[claimant.node, claimant.number] = until_ms

    def bar(self, claimant: Claimant) -> bool:
        """Whether the link must wait: then `ready` is called later."""
        at = slot(claimant)
        if not self._until.get(at):
            return False
        claimant.state = State.BARRED
        self._barred[at] = claimant
        return True

    def forget(self, claimant: Claimant) -> None:
        """The link, which may wait, has ended."""
        if claimant.state is State.BARRED:
            del self._barred[slot(claimant)]

    def expire(self, now_ms: int) -> None:
        """Lift the barriers whose grants are over."""
        for at, until in list(self._until.items()):
            for who in [who for who, end_ms in until.items() if end_ms < now_ms]:
                self._lift(at, who)

    def stopped(self, node: str, known: Container[int]) -> None:
        """A node has reported: links that it does not know have stopped."""
        for at, until in list(self._until.items()):
            for who in [who for who in until if who[0] == node and who[1] not in known]:
                self._lift(at, who)

    def _lift(self, at: Slot, who: tuple[str, int]) -> None:
        until = self._until[at]
        del until[who]
        if not until:
            del self._until[at]
            barred = self._barred.pop(at, None)
            if barred is not None:
                self._ready(barred)


def slot(claimant: Claimant) -> Slot:
    """What the link owns, or claims."""
    wanted, partition = claimant.wanted, claimant.partition
    if wanted.claim is not None:
        assert partition is not None, "only a link that has its partition is granted"
        return wanted.incarnation, None, wanted.claim.group, partition
    return wanted.incarnation, wanted.container, wanted.link, -1
