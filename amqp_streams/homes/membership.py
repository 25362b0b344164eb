"""Which buckets this node is the home of, from the assignments of the Kafka group of all nodes. Pure.

Laws: an assignment of an earlier generation changes nothing. A bucket is given back only after its home has
left it. No promise depends on the group: the fence and the lease decide who is a home, the group only who
tries to be.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Open:
    """Become the home of this bucket."""

    bucket: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Leave this bucket in order, then call `Membership.left`."""

    bucket: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget this bucket at once: another node may be its home already."""

    bucket: int


@dataclass(frozen=True, slots=True)
class GivenBack:
    """Tell the group that these buckets are free, for the assignment of this generation."""

    generation: int
    buckets: frozenset[int]


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the group: no bucket is here any more."""


Effect: TypeAlias = Open | Drain | Drop | GivenBack | Leave


class Membership:
    """The buckets of one node."""

    def __init__(self) -> None:
        self.generation = -1
        self.buckets: Final[set[int]] = set()
        """Whose home is here, those that leave included."""
        self.effects: Final[list[Effect]] = []
        self.stopping = False
        self._leaving: set[int] = set()
        self._given_back: dict[int, frozenset[int]] = {}

    def assigned(self, generation: int, buckets: Collection[int]) -> None:
        """The group assigns all of these buckets to this node, and no others."""
        if generation <= self.generation or self.stopping:
            return
        self.generation = generation
        # What the group gives to others without asking has been taken away: the node was expelled meanwhile.
        for bucket in sorted(self.buckets - set(buckets)):
            self._drop(bucket)
        for bucket in sorted(set(buckets) - self.buckets):
            self.buckets.add(bucket)
            self.effects.append(Open(bucket))

    def revoking(self, generation: int, buckets: Collection[int]) -> None:
        """The group asks for these buckets, for the assignment of this generation."""
        if generation <= self.generation:
            return
        wanted = frozenset(buckets)
        self._given_back[generation] = wanted
        self._begin_leaving(wanted)
        self._finish()

    def lost(self) -> None:
        """The group has expelled this node: its buckets may have other homes already."""
        for bucket in sorted(self.buckets):
            self._drop(bucket)
        self._given_back.clear()
        self._finish()

    def left(self, bucket: int) -> None:
        """The home here has left this bucket."""
        if bucket in self._leaving:
            self._leaving.discard(bucket)
            self.buckets.discard(bucket)
            self._finish()

    def stop(self) -> None:
        """The node stops: leave all buckets, then the group."""
        self.stopping = True
        self._begin_leaving(self.buckets)
        self._finish()

    def _begin_leaving(self, buckets: Collection[int]) -> None:
        for bucket in sorted((set(buckets) & self.buckets) - self._leaving):
            self._leaving.add(bucket)
            self.effects.append(Drain(bucket))

    def _drop(self, bucket: int) -> None:
        self.buckets.discard(bucket)
        self._leaving.discard(bucket)
        self.effects.append(Drop(bucket))

    def _finish(self) -> None:
        for generation, wanted in list(self._given_back.items()):
            if not wanted & self.buckets:
                del self._given_back[generation]
                self.effects.append(GivenBack(generation, wanted))
        if self.stopping and not self.buckets:
            self.effects.append(Leave())
