"""Writes large output to stdout without blocking the event loop, which must send heartbeats."""

import asyncio
import os
import select
import stat
import sys
from typing import Final

_PIPE_BYTES: Final = 4096
"""A pipe that is ready takes this much without waiting (POSIX, PIPE_BUF)."""


class Output:
    """Standard output. Raises BrokenPipeError when it is no longer read."""

    def __init__(self) -> None:
        # What was printed before comes before what is written to the descriptor.
        sys.stdout.flush()
        try:
            self._descriptor: int | None = sys.stdout.fileno()
        except OSError:
            # Not a descriptor: a test has replaced stdout by a buffer.
            self._descriptor = None
            return
        # A write of more than this to a pipe may block, although the pipe is ready.
        self._piecewise = not stat.S_ISREG(os.fstat(self._descriptor).st_mode)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLOUT)

    async def write(self, data: bytes) -> None:
        """Write all bytes; the event loop runs meanwhile."""
        if self._descriptor is None:
            sys.stdout.buffer.write(data)
            return
        left = memoryview(data)
        while left:
            # A regular file never blocks; a pipe or terminal blocks when its reader is slow.
            if self._piecewise and not self._poll.poll(0):
                await self._writable(self._descriptor)
            left = left[os.write(self._descriptor, left[:_PIPE_BYTES] if self._piecewise else left) :]

    def check(self) -> None:
        """Raise BrokenPipeError if stdout is no longer read."""
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
