"""The blocking face of a range: the runs of `amqp_streams.client.consuming.ranges` without `await`."""

from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from amqp_streams.client import aio
from amqp_streams.client.blocking.background import Background

_BATCHES: Final = 4
"""Taken with one switch of threads."""


class RangeReader:
    """See `amqp_streams.client.consuming.ranges.RangeReader`."""

    def __init__(self, thread: Background, inner: aio.RangeReader) -> None:
        self._thread: Final = thread
        self._inner: Final = inner

    @property
    def position(self) -> int:
        """Number of the next event to look at, as far as runs were taken from the client's thread: a few ahead of an iteration."""
        return self._inner.position

    @property
    def incarnation(self) -> str | None:
        """Which log of this name is read; None: not known yet."""
        return self._inner.incarnation

    def take(self, batches_max: int = 1) -> list[aio.Run]:
        """The next runs, at most so many; waits for the first. An empty list: the range is read."""
        return self._thread.call(self._inner.take(batches_max))

    def __iter__(self) -> Iterator[aio.Run]:
        """Run after run to the end; leaving the loop earlier ends it as well."""
        try:
            while runs := self.take(_BATCHES):
                yield from runs
        finally:
            self.close()

    def close(self) -> None:
        """Detach. Nothing more comes."""
        self._thread.call(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
