"""[io] Places that users share, for example to read events: no user can keep the others out.

A user is a key: a session, a namespace. Laws: a free place goes to the user that holds the fewest of those
that wait. A user holds at most half of all places.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Final


class Shares:
    """A number of places, and the users that hold them or wait."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._most_of_one: Final = max(1, places // 2)
        self._held: Final[dict[Hashable, int]] = {}
        self._waiting: Final[dict[Hashable, deque[asyncio.Future[None]]]] = {}
        """The calls that wait, by key. The key that got or gave back a place last is the last."""

    def is_free(self, key: Hashable) -> bool:
        """Whether `place` returns at once for this key."""
        return self._free > 0 and self._held.get(key, 0) < self._most_of_one and key not in self._waiting

    @asynccontextmanager
    async def place(self, key: Hashable) -> AsyncIterator[None]:
        """Wait for a place, and hold it within the context."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        self._give()
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self._release(key)
            else:
                self._leave(key, turn)
            self._give()

    def _give(self) -> None:
        while self._free:
            can = [key for key in self._waiting if self._held.get(key, 0) < self._most_of_one]
            if not can:
                return
            # Of equal ones the first: it has waited longest since it had a place.
            key = min(can, key=lambda each: self._held.get(each, 0))
            turns = self._waiting.pop(key)
            turn = turns.popleft()
            if turns:
                self._waiting[key] = turns
            if turn.cancelled():
                continue
            self._free -= 1
            self._held[key] = self._held.get(key, 0) + 1
            turn.set_result(None)

    def _release(self, key: Hashable) -> None:
        self._free += 1
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]
        if key in self._waiting:
            self._waiting[key] = self._waiting.pop(key)

    def _leave(self, key: Hashable, turn: "asyncio.Future[None]") -> None:
        turns = self._waiting.get(key)
        if turns is None or turn not in turns:
            return
        turns.remove(turn)
        if not turns:
            del self._waiting[key]
