"""The blocking range reader: `amqp_streams.client.consuming.ranges` without `await`."""

from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from amqp_streams.client import aio
from amqp_streams.client.blocking.wrapper import Wrapper, waits

_BATCHES: Final = 4
"""Runs that are fetched with one thread switch: a compromise between speed and memory."""


class RangeReader(Wrapper[aio.RangeReader]):
    """See `amqp_streams.client.consuming.ranges.RangeReader`."""

    take = waits(aio.RangeReader.take)
    close = waits(aio.RangeReader.close)

    @property
    def position(self) -> int:
        """Offset of the next event to read.

        In a `for` loop it can be a few runs ahead of the run in the loop.
        """
        return self._inner.position

    @property
    def incarnation(self) -> str | None:
        """The incarnation of the log that is read; None: not known yet."""
        return self._inner.incarnation

    def __iter__(self) -> Iterator[aio.Run]:
        """Iterate over the runs to the end of the range. Leaving the loop earlier closes the reader."""
        try:
            while runs := self.take(_BATCHES):
                yield from runs
        finally:
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
