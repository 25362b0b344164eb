"""stdout for many bytes: written without holding up the event loop, so that a slow reader of ours does not look dead to the node."""

import asyncio
import os
import select
import stat
import sys
from typing import Final

_PIPE_BYTES: Final = 4096
"""A pipe that is ready takes this much without waiting (POSIX, PIPE_BUF)."""


class Output:
    """Standard output. Raises BrokenPipeError when nobody reads it any more."""

    def __init__(self) -> None:
        sys.stdout.flush()
        try:
            self._descriptor: int | None = sys.stdout.fileno()
        except OSError:
            # Not a descriptor: a test has put a buffer in its place.
            self._descriptor = None
            return
        self._piecewise = not stat.S_ISREG(os.fstat(self._descriptor).st_mode)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLOUT)

    async def write(self, data: bytes) -> None:
        """Write all of it; the loop goes on meanwhile."""
        if self._descriptor is None:
            sys.stdout.buffer.write(data)
            return
        left = memoryview(data)
        while left:
            if self._piecewise and not self._poll.poll(0):
                await self._writable(self._descriptor)
            left = left[os.write(self._descriptor, left[:_PIPE_BYTES] if self._piecewise else left) :]

    def check(self) -> None:
        """Find out that nobody reads, with nothing to write."""
        if self._descriptor is not None and any(events & select.POLLERR for _, events in self._poll.poll(0)):
            raise BrokenPipeError

    @staticmethod
    async def _writable(descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_writer(descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_writer(descriptor)
