"""[io] One answer for all who ask at about the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """What `make` returns, at most `kept_s` seconds old. It is made once for all who ask meanwhile."""

    def __init__(self, make: Callable[[], Awaitable[T]], kept_s: float) -> None:
        self.made = 0
        """How often it was made."""
        self._make: Final = make
        self._kept_s: Final = kept_s
        self._making: asyncio.Task[T] | None = None
        self._until_s = 0.0

    async def get(self) -> T:
        """Return it. Raises what `make` raises; the next one who asks lets it try again."""
        loop = asyncio.get_running_loop()
        making = self._making
        if making is None or (
            making.done() and (loop.time() >= self._until_s or making.exception() is not None)
        ):
            making = self._making = loop.create_task(self._made())
        # A client that leaves must not cancel it for the others.
        return await asyncio.shield(making)

    async def _made(self) -> T:
        self.made += 1
        made = await self._make()
        self._until_s = asyncio.get_running_loop().time() + self._kept_s
        return made
