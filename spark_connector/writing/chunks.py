"""A task's rows, cut into chunks that are sent as one, and the name that each chunk has. Pure.

Law: where the cuts are depends on the rows and nothing else: a task that is run again cuts in the same places. A chunk's name is made of
the write's, the task's, the chunk's number and every byte in it: by the name the log knows what it has of the chunk already, and rows that
are others, or in another order, have another name and are stored. So a replay that is not exact costs duplicates, never an event.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from spark_connector.writing.messages import Place

ROWS_MAX: Final = 32_768
"""Rows of a chunk. More cost memory, fewer cost an attach for too few."""
BYTES_MAX: Final = 8 << 20
"""Bytes of a chunk's messages, unless one alone is larger."""
NAME_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows of a task. `number` counts chunks from 0; `messages` have the order of the rows in each place."""

    number: int
    messages: dict[Place, list[bytes]]
    rows: int
    bytes: int


class Cutter:
    """Cuts the rows of one task. `sort`: rows of a chunk that go to the same place are put in the order of their bytes."""

    def __init__(self, *, sort: bool = False, rows_max: int = ROWS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._sort: Final = sort
        self._rows_max: Final = rows_max
        self._bytes_max: Final = bytes_max
        self._number = 0
        self._clear()

    def add(self, messages: Sequence[bytes], places: Sequence[Place] | Place) -> Iterator[Chunk]:
        """Take rows (`places`: one for each, or one for all); gives the chunks that are full now."""
        start = 0
        while start < len(messages):
            taken = self._fitting(messages[start : start + self._rows_max - self._rows])
            place = places if places is None or isinstance(places, int) else places[start : start + len(taken)]
            self._take(taken, place)
            start += len(taken)
            if start < len(messages) or self._rows == self._rows_max:
                yield self._cut()

    def rest(self) -> Iterator[Chunk]:
        """The last chunk, if anything is left."""
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
        raise AssertionError("together they were too large")

    def _take(self, messages: Sequence[bytes], places: Sequence[Place] | Place) -> None:
        self._rows += len(messages)
        self._bytes += sum(map(len, messages))
        if places is None or isinstance(places, int):
            self._messages.setdefault(places, []).extend(messages)
            return
        for place, message in zip(places, messages, strict=True):
            self._messages.setdefault(place, []).append(message)

    def _cut(self) -> Chunk:
        if self._sort:
            for messages in self._messages.values():
                messages.sort()
        chunk = Chunk(self._number, self._messages, self._rows, self._bytes)
        self._number += 1
        self._clear()
        return chunk

    def _clear(self) -> None:
        self._messages: dict[Place, list[bytes]] = {}
        self._rows = self._bytes = 0


def name_of(task: str, chunk: Chunk, place: Place) -> str:
    """What the log knows the chunk's messages for `place` by; `task` names the write and the task of it.

    With 128 bits two that differ have the same name once in 10^38 times.
    """
    messages = chunk.messages[place]
    digest = blake2b(digest_size=NAME_BYTES)
    digest.update(f"{task}\0{chunk.number}\0{place}\0".encode())
    digest.update(array("Q", map(len, messages)).tobytes())
    digest.update(b"".join(messages))
    return f"spark-{digest.hexdigest()}"
