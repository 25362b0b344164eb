"""[io] Slots for connections or lookups: a limit for all owners, and a share for each owner.

At most `max` slots are used at once. An owner may use one more slot only while more slots are free than the
owner uses. So one subscriber that never answers gets at most half of the slots, and n such subscribers leave
1/(n+1) of the slots free.
"""

import asyncio
from collections import Counter
from typing import Final

CONNECTIONS_MAX: Final = 10_000


class Slots:
    """`max`: number of slots. `used`: slots in use. An owner is a subscriber or a namespace."""

    def __init__(self, slots_max: int) -> None:
        self.max: Final = slots_max
        self.used = 0
        self._used_by: Final[Counter[str]] = Counter()
        self._waiting: Final[dict[str, dict[asyncio.Future[None], None]]] = {}

    @property
    def waiting(self) -> int:
        """How many requests wait for a slot."""
        return sum(map(len, list(self._waiting.values())))  # a copy: `/metrics` is made in another thread

    def take(self, owner: str) -> None:
        """Use a slot without waiting, for a connection that is already open."""
        self.used += 1
        self._used_by[owner] += 1

    async def acquire(self, owner: str) -> None:
        """Wait until a slot is free for this owner, and use it."""
        while not self.has_room(owner):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(owner, {})[turn] = None
            try:
                await turn
            except BaseException:
                if turn.done() and not turn.cancelled():
                    # A cancelled request does not use its slot: give the slot to another request.
                    self._wake()
                else:
                    self._leave(owner, turn)
                raise
        self.take(owner)

    def release(self, owner: str) -> None:
        """Free a slot of this owner."""
        self.used -= 1
        if self._used_by[owner] > 1:
            self._used_by[owner] -= 1
        else:
            del self._used_by[owner]
        if self._waiting:
            self._wake()

    def has_room(self, owner: str) -> bool:
        """Return whether the owner may use one more slot now."""
        return self._used_by[owner] < self.max - self.used

    def _wake(self) -> None:
        """Give the free slot to one request of the first owner that may use it. Owners take turns
        (round-robin).
        """
        for owner in list(self._waiting):
            if self.has_room(owner):
                # Removed and added again at the end: that is the turn of the next owner.
                turns = self._waiting.pop(owner)
                turn = next((turn for turn in turns if not turn.done()), None)
                if turn is None:
                    continue
                del turns[turn]
                if turns:
                    self._waiting[owner] = turns
                turn.set_result(None)
                return

    def _leave(self, owner: str, turn: "asyncio.Future[None]") -> None:
        turns = self._waiting.get(owner, {})
        turns.pop(turn, None)
        if not turns:
            self._waiting.pop(owner, None)
