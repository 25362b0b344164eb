"""Who gets which partition of a group, and which move when members come: decisions over plain counts. Spec: Event Streams 4.5.1.

Laws: the poorest is served first; a partition moves only when that makes the spread more even (a difference of two or more), so what has
settled stays settled; a move takes no more than the one who waits has asked for.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MOVING_DIFFERENCE: Final = 2
"""A member must hold so many more than the one who waits; with one more, a move would only turn the picture round."""


@dataclass(frozen=True, slots=True)
class Free:
    """A partition that nobody holds, as one member sees it."""

    partition: int
    reserved: bool
    """It was freed for this member."""
    held_last: bool
    """This member was its last holder: what it keeps of it is warm."""
    links: int
    """How many links of other groups it has."""


def choose(free: Collection[Free]) -> int | None:
    """The partition to bind a member's link to; None: there is none."""
    if not free:
        return None
    return min(free, key=lambda each: (not each.reserved, not each.held_last, each.links, each.partition)).partition


@dataclass(frozen=True, slots=True)
class Move:
    """Take `partition` from one member, for another."""

    partition: int
    giver: str
    taker: str


def moves(loads: Mapping[str, int], wanted: Mapping[str, int], movable: Mapping[str, Sequence[int]]) -> list[Move]:
    """The partitions to free for members who wait.

    `loads`: partitions of each member, those on their way to it included; who is missing has none. `wanted`: how many more each waiting
    member asks for, the longest waiting first. `movable`: what the node may take from each, the last taken first.
    """
    load = {**dict.fromkeys(wanted, 0), **loads}
    want = {member: count for member, count in wanted.items() if count > 0}
    left = {member: list(partitions) for member, partitions in movable.items() if partitions}
    decided: list[Move] = []
    while want and left:
        taker = min(want, key=load.__getitem__)
        giver = max(left, key=load.__getitem__)
        if load[giver] - load[taker] < MOVING_DIFFERENCE:
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
