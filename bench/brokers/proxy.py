"""[io] TCP proxies on loopback whose traffic can be held, as a network that swallows packets does.

While a proxy is cut, it reads nothing: connections stay open and nothing passes, in both directions, also on
new connections. When it is joined again, everything continues: TCP loses no byte on the way.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Self

_BYTES: Final = 1 << 16
_LOOPBACK: Final = "127.0.0.1"


class Proxy:
    """Forwards connections to a port. Use it with `async with`."""

    def __init__(self, target: int, *, port: int) -> None:
        self.port: Final = port
        self._target: Final = target
        self._open: Final = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    def cut(self) -> None:
        """Let nothing pass."""
        self._open.clear()

    def join(self) -> None:
        """Let everything pass again."""
        self._open.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, _LOOPBACK, self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            # Cancelled at the end of the run; a server that sees that as an error would log it.
            with suppress(OSError, asyncio.CancelledError):
                await self._forward(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._open.wait()
        their_reader, their_writer = await asyncio.open_connection(_LOOPBACK, self._target)
        try:
            ways = (self._pass(reader, their_writer), self._pass(their_reader, writer))
            tasks = [asyncio.ensure_future(way) for way in ways]
            # If one end is gone, the other one must see it.
            _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            their_writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # An end that is gone ends the connection.
        with suppress(OSError):
            while data := await reader.read(_BYTES):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        await self._open.wait()


class Cuts:
    """The proxies between nodes and brokers, by node and broker (both from 0)."""

    def __init__(self, proxies: Sequence[Sequence[Proxy]]) -> None:
        self.proxies: Final = proxies

    def broker(self, number: int) -> list[Proxy]:
        """Those between one broker and all nodes."""
        return [each[number] for each in self.proxies]

    def node(self, number: int) -> list[Proxy]:
        """Those between one node and all brokers."""
        return list(self.proxies[number])
