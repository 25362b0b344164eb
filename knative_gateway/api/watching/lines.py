"""The lines of watches: the JSON text of an event, encoded once for all watches that send it. [io]"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Final

from knative_gateway.api.stepping import json_text
from knative_gateway.http.turns import Turns

KEPT_BYTES_MAX: Final = 16 << 20
"""Bytes of the latest lines. A thousand watches of an object send its line for several seconds."""
PIECE_BYTES: Final = 64 << 10
"""Bytes of a line that are sent at once. The buffer of a connection holds at most two."""


class Lines:
    """The latest lines. `turns`: of all watches. A thousand of them may have different large objects."""

    def __init__(self, turns: Turns, *, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._turns: Final = turns
        self._bytes_max: Final = bytes_max
        self._bytes = 0
        self._kept: Final[OrderedDict[Hashable, bytes]] = OrderedDict()
        self._coming: Final[dict[Hashable, asyncio.Future[bytes | None]]] = {}
        """The lines that are being encoded. None: the watch that encoded the line has ended."""

    async def line(self, key: Hashable, event: Callable[[], object]) -> bytes:
        """Return the line of an event. `key`: equal for equal events. None: no other watch has this event."""
        if key is None:
            return await self._written(event)
        while True:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
                return kept
            coming = self._coming.get(key)
            if coming is None:
                return await self._encoded(key, event)
            line = await asyncio.shield(coming)
            # A thousand watches may have waited for it.
            await self._turns.turn()
            if line is not None:
                return line

    async def _encoded(self, key: Hashable, event: Callable[[], object]) -> bytes:
        coming = self._coming[key] = asyncio.get_running_loop().create_future()
        try:
            line = await self._written(event)
        except BaseException:
            coming.set_result(None)
            raise
        finally:
            del self._coming[key]
        coming.set_result(line)
        self._keep(key, line)
        return line

    async def _written(self, event: Callable[[], object]) -> bytes:
        return await json_text(event(), self._turns.turn) + b"\n"

    def _keep(self, key: Hashable, line: bytes) -> None:
        self._kept[key] = line
        self._bytes += len(line)
        while self._bytes > self._bytes_max:
            self._bytes -= len(self._kept.popitem(last=False)[1])


def pieces(line: bytes) -> Iterator[bytes]:
    """Yield a line in the pieces in which it is sent."""
    if len(line) <= PIECE_BYTES:
        yield line
        return
    for start in range(0, len(line), PIECE_BYTES):
        yield line[start : start + PIECE_BYTES]
