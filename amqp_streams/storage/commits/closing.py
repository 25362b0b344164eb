"""[io] Closing a store: what only the journal has is moved to segments, as far as the time allows."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from amqp_streams.storage.commits.flushing import Flusher
from amqp_streams.storage.partitions.partition_log import PartitionLog

_CLOSED_TOGETHER: Final = 16
"""Partitions whose records are moved to segments before the time is looked at again."""


def move_to_segments(
    partitions: Sequence[PartitionLog], flusher: Flusher, *, drain: Callable[[], None], deadline: float
) -> None:
    """Write and sync what only the journal has, partition by partition, until the deadline.

    Each partition costs several syncs. With hundreds of partitions on a busy disk they take longer than a
    service manager waits after SIGTERM, and a kill in the middle would be worse than an ordered end. `drain`
    waits until no task is in flight. `deadline`: of `time.monotonic`.
    """
    for first in range(0, len(partitions), _CLOSED_TOGETHER):
        some = partitions[first : first + _CLOSED_TOGETHER]
        if time.monotonic() >= deadline:
            return
        for partition in some:
            flusher.flush(partition)
        drain()
        for partition in some:
            active = partition.segments.active
            if active.bytes != active.covered or partition.synced_end < partition.end:
                flusher.sync(partition, with_index=True)
        drain()
