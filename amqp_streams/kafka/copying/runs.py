"""Which offset each record has in Kafka: runs of records that follow each other on both sides. Pure.

Offsets change when a log is copied: Kafka begins at 0, whatever retention removed before, and has numbers of
its own for the ends of transactions. So a position in the log needs a new number.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple


class Run(NamedTuple):
    """So many records: those from number `old` on have the offsets from `new` on."""

    old: int
    new: int
    records: int


class Runs:
    """The runs of one partition, in the order of both numbers."""

    def __init__(self) -> None:
        self._runs: Final[list[Run]] = []

    def __iter__(self) -> Iterator[Run]:
        return iter(tuple(self._runs))

    @property
    def count(self) -> int:
        """How many records there are."""
        return sum(run.records for run in self._runs)

    def add(self, old: int, offsets: Sequence[int]) -> None:
        """Add records that follow each other from number `old` on, with these offsets."""
        at = 0
        while at < len(offsets):
            # Nearly always all of them.
            end = len(offsets)
            while offsets[end - 1] - offsets[at] != end - 1 - at:
                end = at + max(1, (end - at) // 2)
            self._add(Run(old + at, offsets[at], end - at))
            at = end

    def new_of(self, old: int, end: int) -> int:
        """The offset of the first record with this number or a larger one; `end` if it does not exist."""
        for run in self._runs:
            if old < run.old + run.records:
                return run.new + max(0, old - run.old)
        return end

    def _add(self, run: Run) -> None:
        last = self._runs[-1] if self._runs else None
        assert last is None or (last.old + last.records <= run.old and last.new + last.records <= run.new)
        if last is not None and (last.old + last.records, last.new + last.records) == run[:2]:
            self._runs[-1] = Run(last.old, last.new, last.records + run.records)
        else:
            self._runs.append(run)
