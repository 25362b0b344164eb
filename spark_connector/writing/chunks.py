"""Divides the rows of a task into chunks, which are sent as a unit, and names each chunk. Pure.

- The boundaries depend only on the rows: a task that runs again makes the same chunks.
- The name of a chunk depends on the write, the task, the number of the chunk, and every byte in it. By the
  name, the log recognizes the events of a chunk that it already has. Other rows, or another order, give
  another name, and the rows are stored. So a replay that differs causes duplicates, but does not lose events.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from spark_connector.writing.messages import Target

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
    messages: dict[Target, list[bytes]]
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

    def add(self, messages: Sequence[bytes], targets: Sequence[Target] | Target) -> Iterator[Chunk]:
        """Add rows, and yield the chunks that are full. `targets`: one for each row, or one for all."""
        start = 0
        while start < len(messages):
            taken = self._fitting(messages[start : start + self._rows_max - self._rows])
            target = (
                targets
                if targets is None or isinstance(targets, int)
                else targets[start : start + len(taken)]
            )
            self._take(taken, target)
            start += len(taken)
            if start < len(messages) or self._rows == self._rows_max:
                yield self._cut()

    def rest(self) -> Iterator[Chunk]:
        """Yield the last chunk, if any rows are left."""
        if self._rows:
            yield self._cut()

    def _fitting(self, messages: Sequence[bytes]) -> Sequence[bytes]:
        if self._bytes + sum(map(len, messages)) <= self._bytes_max:
            return messages
        size = self._bytes
        for count, message in enumerate(messages):
            size += len(message)
            if size > self._bytes_max:
                return messages[: max(count, 0 if self._rows else 1)]
        raise AssertionError("the messages do not fit together")

    def _take(self, messages: Sequence[bytes], targets: Sequence[Target] | Target) -> None:
        self._rows += len(messages)
        self._bytes += sum(map(len, messages))
        if targets is None or isinstance(targets, int):
            self._messages.setdefault(targets, []).extend(messages)
            return
        for target, message in zip(targets, messages, strict=True):
            self._messages.setdefault(target, []).append(message)

    def _cut(self) -> Chunk:
        if self._sort:
            for messages in self._messages.values():
                messages.sort()
        chunk = Chunk(self._number, self._messages, self._rows, self._bytes)
        self._number += 1
        self._clear()
        return chunk

    def _clear(self) -> None:
        self._messages: dict[Target, list[bytes]] = {}
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
    digest.update(array("Q", map(len, messages)).tobytes())
    digest.update(b"".join(messages))
    return f"spark-{digest.hexdigest()}"
