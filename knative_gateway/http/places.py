"""[io] Places for answers that hold much memory until their clients have read them.

Laws: at most `PLACES` such answers exist at once. Those of one user hold at most half of the places. Answers
that send the same bytes share a place. While an answer waits for a place, those end whose clients read them
slower than `RATE_BYTES_S` after `SLOW_S`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final

from service_parts.shares import Shares

PLACES: Final = 32
SLOW_S: Final = 2.0
"""How long the gateway waits for a client that reads nothing, in seconds."""
RATE_BYTES_S: Final = 256 << 10
LOOK_S: Final = 0.25


class Held:
    """What the answers in one place hold together. `line`: the bytes that they send, if they are the same."""

    def __init__(self) -> None:
        self.line: bytes | None = None
        self.count = 0
        self.release: Final = AsyncExitStack()


class Place:
    """The part of one answer. `cut`: closes the connection of its client."""

    def __init__(self, held: Held, cut: Callable[[], None]) -> None:
        self.held: Final = held
        self.cut: Final = cut
        self._sent_bytes = 0
        self._waited_s = 0.0
        """How long the client took to read. The time in which the gateway computes does not count."""
        self._waits_since: float | None = None

    @contextmanager
    def sending(self, bytes_count: int) -> Iterator[None]:
        """Count the time of the context as the time in which the client reads so many bytes."""
        loop = asyncio.get_running_loop()
        self._waits_since = begun = loop.time()
        try:
            yield
        finally:
            self._waits_since = None
            self._waited_s += loop.time() - begun
            self._sent_bytes += bytes_count

    def is_slow(self, now_s: float) -> bool:
        """Whether the client reads too slowly for an answer that others wait for."""
        if self._waits_since is None:
            return False
        return self._waited_s + now_s - self._waits_since > SLOW_S + self._sent_bytes / RATE_BYTES_S


class Places:
    """The places of a listener."""

    def __init__(self, places: int = PLACES) -> None:
        self._shares: Final = Shares(places)
        self._held: Final[dict[Hashable, Held]] = {}
        """By what the answers send."""
        self._coming: Final[dict[Hashable, set[asyncio.Future[None]]]] = {}
        """Done when another answer has a place for these bytes."""
        self._answers: Final[set[Place]] = set()
        self._waiting = 0
        self._looking: asyncio.TimerHandle | None = None

    def is_free(self, user: Hashable, sends: Hashable = None) -> bool:
        """Whether `place` returns at once."""
        return sends in self._held or self._shares.is_free(user)

    @asynccontextmanager
    async def place(
        self,
        user: Hashable,
        cut: Callable[[], None],
        *,
        sends: Hashable = None,
        stopping: asyncio.Event | None = None,
    ) -> AsyncIterator[Place | None]:
        """Wait for a place, and hold it within the context. None: `stopping` was set before.

        `sends`: equal for answers that send the same bytes. None: no other answer sends these.
        """
        held = self._held.get(sends)
        if held is None:
            held = await self._new(user, sends, stopping)
        if held is None:
            yield None
            return
        place = Place(held, cut)
        held.count += 1
        self._answers.add(place)
        try:
            yield place
        finally:
            self._answers.discard(place)
            held.count -= 1
            if not held.count:
                if self._held.get(sends) is held:
                    del self._held[sends]
                await held.release.aclose()

    async def _new(self, user: Hashable, sends: Hashable, stopping: asyncio.Event | None) -> Held | None:
        """Wait until a place is free, or until another answer has one for the same bytes."""
        made = Held()
        if self._shares.is_free(user):
            await made.release.enter_async_context(self._shares.place(user))
        elif not await self._waited(made, user, sends, stopping):
            return self._held.get(sends)
        other = self._held.get(sends)
        if other is not None:
            await made.release.aclose()
            return other
        if sends is not None:
            self._held[sends] = made
            for each in self._coming.get(sends, ()):
                if not each.done():
                    each.set_result(None)
        return made

    async def _waited(
        self, made: Held, user: Hashable, sends: Hashable, stopping: asyncio.Event | None
    ) -> bool:
        """Wait until `made` has a place. False: it need not, or `stopping` is set."""
        entering = asyncio.ensure_future(made.release.enter_async_context(self._shares.place(user)))
        stops = asyncio.ensure_future((stopping or asyncio.Event()).wait())
        shared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting: set[asyncio.Future[Any]] = {entering, stops, shared}
        self._coming.setdefault(sends, set()).add(shared)
        self._waiting += 1
        self._look_later()
        has_place = False
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            has_place = entering.done()
            return has_place
        finally:
            self._waiting -= 1
            self._coming[sends].discard(shared)
            if not self._coming[sends]:
                del self._coming[sends]
            stops.cancel()
            if not has_place:
                entering.cancel()
                await asyncio.wait({entering})
                await made.release.aclose()

    def _look_later(self) -> None:
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """End the slow answers, if others wait."""
        self._looking = None
        if not self._waiting:
            return
        now = asyncio.get_running_loop().time()
        for place in [place for place in self._answers if place.is_slow(now)]:
            # It keeps its place until its task has noticed the end.
            self._answers.discard(place)
            place.cut()
        self._look_later()
