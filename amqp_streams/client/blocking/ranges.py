"""The blocking face of a range: the runs of `amqp_streams.client.consuming.ranges` without `await`."""

from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from amqp_streams.client import aio
from amqp_streams.client.blocking.face import Face, waits

_BATCHES: Final = 4
"""Taken with one switch of threads."""


class RangeReader(Face[aio.RangeReader]):
    """See `amqp_streams.client.consuming.ranges.RangeReader`."""

    take = waits(aio.RangeReader.take)
    close = waits(aio.RangeReader.close)

    @property
    def position(self) -> int:
        """Number of the next event to look at, as far as runs were taken from the client's thread: a few
        ahead of an iteration.
        """
        return self._inner.position

    @property
    def incarnation(self) -> str | None:
        """Which log of this name is read; None: not known yet."""
        return self._inner.incarnation

    def __iter__(self) -> Iterator[aio.Run]:
        """Run after run to the end; leaving the loop earlier ends it as well."""
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
