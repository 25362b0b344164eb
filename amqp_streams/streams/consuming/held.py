"""Chunks of the log in the memory of readers: one bound for all readers, links and partitions together.

Law: a reader whose chunk is dropped reads it again from its position; nothing else changes.
"""

from collections import OrderedDict
from typing import Final, Protocol

from amqp_streams.storage.ports import Chunk
from amqp_streams.wire.batched.packed import total_bytes

BYTES_MAX: Final = 64 << 20
"""Of all readers together: as much as may wait for the disk."""
_CHUNK_BYTES: Final = 1024
_RECORD_BYTES: Final = 64


class Holder(Protocol):
    """A cursor that may have a chunk. `used`: whether it was used since the flag was last set to False."""

    used: bool

    def forget(self) -> None:
        """Drop the chunk."""


class Held:
    """The chunks of all readers: at most `bytes_max` bytes, or one chunk."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes = 0
        self.bytes_max: Final = bytes_max
        self._holders: Final[OrderedDict[Holder, int]] = OrderedDict()

    def hold(self, holder: Holder, chunk: Chunk) -> None:
        """Record that this holder has read this chunk and has no other.

        The chunks that were read longest ago are dropped for it.
        """
        self.release(holder)
        size = _CHUNK_BYTES + _RECORD_BYTES * len(chunk) + total_bytes(chunk.messages)
        self._holders[holder] = size
        self.bytes += size
        # Each `forget` calls `release`, which removes the entry.
        while self.bytes > self.bytes_max and len(self._holders) > 1:
            next(iter(self._holders)).forget()

    def release(self, holder: Holder) -> None:
        """Stop counting the chunk of this holder: it was dropped."""
        self.bytes -= self._holders.pop(holder, 0)

    def age(self) -> None:
        """Drop the chunks that were not used since the last call."""
        # A copy: `forget` changes the collection.
        for holder in list(self._holders):
            if holder.used:
                holder.used = False
            else:
                holder.forget()
