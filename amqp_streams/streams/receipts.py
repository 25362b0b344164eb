"""What became of the messages of one or more transfers: their commits, and what was refused.

Law: each message is in exactly one of these: a part, the settled ones, the refused ones, those that wait for
the creation of a log.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from amqp_streams.errors import PeerError, StorageError
from amqp_streams.storage.ports import CommitQueue, Partition


@dataclass(frozen=True, slots=True)
class Part:
    """The messages at `indices` (None: all) whose records one partition has in one commit of its queue.

    `count` and `bytes`: how many of them are new. Repetitions of an idempotent producer are not.
    """

    partition: Partition
    indices: Sequence[int] | None
    count: int
    bytes: int
    commit: int


class Wait(NamedTuple):
    """The messages at `indices` (None: all) get their outcomes when this commit of this queue has ended.

    The indices of `parts` are positions in `indices`.
    """

    queue: CommitQueue
    commit: int
    indices: Sequence[int] | None
    parts: Sequence[Part]


@dataclass(slots=True)
class Receipt:
    """The result of a batch of transfers.

    `parts`: what the partitions took. `refused`: the indices of refused messages, with the error. `settled`:
    indices of repetitions of an idempotent producer that are durable. `invalid`: the index and the error of
    the first event because of which a batch that stays together was refused: then nothing of it was added.
    `awaited`: the index of a message whose log must be created first, and the address of the log. Nothing
    was done with this message and those after it.
    """

    parts: list[Part] = field(default_factory=list)
    refused: list[tuple[int, PeerError | StorageError]] = field(default_factory=list)
    settled: Sequence[int] = ()
    invalid: tuple[int, PeerError | StorageError] | None = None
    awaited: tuple[int, str] | None = None

    def spoil(self) -> bool:
        """If an event of a batch that stays together was refused, refuse the batch; returns whether it is."""
        if self.refused:
            self.invalid = min(self.refused, key=lambda refusal: refusal[0])
            self.refused.clear()
        return self.invalid is not None

    def waits(self) -> list[Wait]:
        """Return what the messages wait for: one entry for each commit that has records of them."""
        parts = self.parts
        if not parts:
            return []
        queue, commit = parts[0].partition.queue, parts[0].commit
        # Hot path: no message was answered already, and one commit has all records.
        if (
            not self.refused
            and not self.settled
            and all(part.commit == commit and part.partition.queue is queue for part in parts)
        ):
            return [Wait(queue, commit, None, parts)]
        by_commit: dict[tuple[CommitQueue, int], list[Part]] = {}
        for part in parts:
            by_commit.setdefault((part.partition.queue, part.commit), []).append(part)
        return [_wait(queue, commit, parts) for (queue, commit), parts in by_commit.items()]


def _wait(queue: CommitQueue, commit: int, parts: Sequence[Part]) -> Wait:
    indices: list[int] = []
    own: list[Part] = []
    for part in parts:
        if part.indices is None:  # a part with all messages is the only one of its receipt
            return Wait(queue, commit, None, parts)
        first = len(indices)
        indices += part.indices
        own.append(Part(part.partition, range(first, len(indices)), part.count, part.bytes, commit))
    return Wait(queue, commit, indices, own)
