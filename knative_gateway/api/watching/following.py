"""The changes of the store after a version, for one watch: it holds at most one of them. [io]"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

from knative_gateway.ports import Change, ResourceStore


class Following:
    """The changes of all kinds, so that the position advances even if changes of one kind are rare.

    `position`: the version of the last change that came. `closing` ends each wait. Call `close` at the end.
    """

    def __init__(self, store: ResourceStore, after: int, closing: asyncio.Event) -> None:
        self.position = after
        self._store: Final = store
        self._changes = store.watch("", "", after, in_turns=True)
        self._closing: Final = asyncio.ensure_future(closing.wait())
        self._coming: asyncio.Future[Change] | None = None
        self._change: Change | None = None

    @property
    def change(self) -> Change:
        """The change that came last, until `done` or `forget`."""
        assert self._change is not None
        return self._change

    async def come(self, timeout_s: float) -> bool:
        """Wait for the next change, unless one is held already. Returns whether one is held.

        Raises:
          GoneError: it was removed.
          StopAsyncIteration: the store is closed.
        """
        if self._change is not None:
            return True
        # The future is kept over several waits: cancelling `anext` would end the generator of the store.
        if self._coming is None:
            self._coming = asyncio.ensure_future(anext(self._changes))
        coming = self._coming
        waiting: set[asyncio.Future[Any]] = {coming, self._closing}
        await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not coming.done():
            return False
        self._coming = None
        self._change = coming.result()
        self.position = self._change.version
        return True

    def done(self) -> None:
        """Hold the change no longer."""
        self._change = None

    async def forget(self, position: int) -> None:
        """Hold no change, also none that comes, until the next `come`. Continue after this position."""
        await self._end()
        self.position = position
        self._changes = self._store.watch("", "", position, in_turns=True)

    async def close(self) -> None:
        """End."""
        self._closing.cancel()
        await self._end()

    async def _end(self) -> None:
        self._change = None
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
        if isinstance(self._changes, AsyncGenerator):
            await self._changes.aclose()
