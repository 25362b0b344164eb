"""Divides the rows of a task into chunks, which are sent as a unit, and names each chunk. Pure.

- The boundaries depend only on the rows: a task that runs again makes the same chunks.
- The name of a chunk depends on the write, the task, the number of the chunk, and every byte in it. By the
  name, the log recognizes the events of a chunk that it already has. Other rows, or another order, give
  another name, and the rows are stored. So a replay that differs causes duplicates, but does not lose events.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_connector.writing.messages import Target
from spark_connector.writing.packing import bytes_of, contents, lengths

ROWS_MAX: Final = 32_768
"""Rows of a chunk. More rows need more memory; fewer rows need more attaches."""
BYTES_MAX: Final = 8 << 20
"""Bytes of the messages of a chunk, unless one message is larger."""
NAME_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows of a task. `number` counts from 0.

    `messages`: for each target, in the order of the rows.
    """

    number: int
    messages: dict[Target, pa.BinaryArray]
    rows: int
    bytes: int


class Cutter:
    """Divides the rows of one task. `sort`: sort the messages for each target of a chunk by their bytes."""

    def __init__(self, *, sort: bool = False, rows_max: int = ROWS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._sort: Final = sort
        self._rows_max: Final = rows_max
        self._bytes_max: Final = bytes_max
        self._number = 0
        self._clear()

    def add(self, messages: pa.BinaryArray, targets: pa.Int64Array | Target) -> Iterator[Chunk]:
        """Add rows, and yield the chunks that are full.

        `targets`: one for each row (null: BY_KEY), or one for all.
        """
        start = 0
        while start < len(messages):
            taken = self._fitting(messages[start : start + self._rows_max - self._rows])
            if targets is None or isinstance(targets, int):
                self._take(taken, targets)
            else:
                self._take(taken, targets[start : start + len(taken)])
            start += len(taken)
            if start < len(messages) or self._rows == self._rows_max:
                yield self._cut()

    def rest(self) -> Iterator[Chunk]:
        """Yield the last chunk, if any rows are left."""
        if self._rows:
            yield self._cut()

    def _fitting(self, messages: pa.BinaryArray) -> pa.BinaryArray:
        if self._bytes + len(contents(messages)) <= self._bytes_max:
            return messages
        # The running total is ascending: the first row beyond the limit ends the chunk.
        totals = pc.cumulative_sum(lengths(messages).cast(pa.int64()), start=self._bytes)
        count = pc.index(pc.greater(totals, self._bytes_max), True).as_py()
        return messages[: max(count, 0 if self._rows else 1)]

    def _take(self, messages: pa.BinaryArray, targets: pa.Int64Array | Target) -> None:
        self._rows += len(messages)
        self._bytes += len(contents(messages))
        if targets is None or isinstance(targets, int):
            self._messages.setdefault(targets, []).append(messages)
            return
        # The sort is stable: the rows for one target keep their order.
        order = pc.sort_indices(targets)
        messages, runs = messages.take(order), pc.run_end_encode(targets.take(order))
        start = 0
        for target, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            self._messages.setdefault(target, []).append(messages[start:end])
            start = end

    def _cut(self) -> Chunk:
        whole = {target: pa.concat_arrays(parts) for target, parts in self._messages.items()}
        if self._sort:
            whole = {target: one.take(pc.sort_indices(one)) for target, one in whole.items()}
        chunk = Chunk(self._number, whole, self._rows, self._bytes)
        self._number += 1
        self._clear()
        return chunk

    def _clear(self) -> None:
        self._messages: dict[Target, list[pa.BinaryArray]] = {}
        self._rows = self._bytes = 0


def name_of(task: str, chunk: Chunk, target: Target) -> str:
    """Return the producer name under which the log stores the messages of a chunk for `target`.

    `task`: the name of the write and its task. The producer name has 128 bits of a hash: two different chunks
    have the same name with a probability of 10^-38.
    """
    messages = chunk.messages[target]
    digest = blake2b(digest_size=NAME_BYTES)
    digest.update(f"{task}\0{chunk.number}\0{target}\0".encode())
    # The lengths as well: otherwise different messages could have the same bytes in sequence.
    digest.update(bytes_of(lengths(messages).cast(pa.int64())))
    digest.update(contents(messages))
    return f"spark-{digest.hexdigest()}"
