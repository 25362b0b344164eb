"""Which member of a group gets which partition, and which partitions move: pure decisions.

Spec: Event Streams 4.5.1.

Laws: the member with the fewest partitions is served first. A partition moves only if the difference is two
or more, so that a stable assignment stays stable. A member gets at most as many partitions as it asked for.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MOVING_DIFFERENCE: Final = 2
"""A partition moves only if one member has at least this many more than the other. With a difference of one,
a move would only exchange the roles of the two members.
"""


@dataclass(frozen=True, slots=True)
class Free:
    """A partition without an owner, from the view of one member."""

    partition: int
    reserved: bool
    """It was freed for this member."""
    owned_last: bool
    """This member was its last owner, and may still have its data in memory."""
    links: int
    """The number of its links in other groups."""


def choose(free: Collection[Free]) -> int | None:
    """The partition to assign to a member's link; None if none is free."""
    if not free:
        return None
    return min(
        # Reserved first, then the partition whose data the member may still have, then the least used.
        free,
        key=lambda each: (not each.reserved, not each.owned_last, each.links, each.partition),
    ).partition


@dataclass(frozen=True, slots=True)
class Move:
    """Move `partition` from one member to another."""

    partition: int
    giver: str
    taker: str


def moves(
    loads: Mapping[str, int], wanted: Mapping[str, int], movable: Mapping[str, Sequence[int]]
) -> list[Move]:
    """The partitions to free for members that wait.

    `loads`: partitions by member, including those reserved for it; a missing member has none. `wanted`: how
    many more each waiting member asks for, in the order of waiting. `movable`: what may be taken from each,
    the newest first.
    """
    load = {**dict.fromkeys(wanted, 0), **loads}
    want = {member: count for member, count in wanted.items() if count > 0}
    left = {member: list(partitions) for member, partitions in movable.items() if partitions}
    decided: list[Move] = []
    while want and left:
        taker = min(want, key=load.__getitem__)
        giver = max(left, key=load.__getitem__)
        if load[giver] - load[taker] < MOVING_DIFFERENCE:
            # The others differ less: no more moves.
            break
        decided.append(Move(left[giver].pop(0), giver, taker))
        load[giver] -= 1
        load[taker] += 1
        want[taker] -= 1
        if not want[taker]:
            del want[taker]
        if not left[giver]:
            del left[giver]
    return decided
