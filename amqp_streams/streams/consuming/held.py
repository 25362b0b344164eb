"""Chunks of the log that readers hold: one bound for all readers, links and partitions together.

Law: what is taken from a reader it reads again, from where it is; nothing else changes.
"""

from collections import OrderedDict
from typing import Final, Protocol

from amqp_streams.storage.ports import Chunk

BYTES_MAX: Final = 64 << 20
"""Of all readers together: as much as waits for the disk at most."""
_CHUNK_BYTES: Final = 1024
_RECORD_BYTES: Final = 64


class Holder(Protocol):
    """A cursor that may hold a chunk. `used`: it was, since this was last set to False."""

    used: bool

    def forget(self) -> None:
        """Give the chunk back."""


class Held:
    """The chunks of all readers, at most `bytes_max` bytes and one chunk."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes = 0
        self.bytes_max: Final = bytes_max
        self._holders: Final[OrderedDict[Holder, int]] = OrderedDict()

    def hold(self, holder: Holder, chunk: Chunk) -> None:
        """This one has read this chunk, and has no other. The chunks that were read longest ago make room for it."""
        self.release(holder)
        size = _CHUNK_BYTES + _RECORD_BYTES * len(chunk) + sum(map(len, chunk.messages))
        self._holders[holder] = size
        self.bytes += size
        while self.bytes > self.bytes_max and len(self._holders) > 1:
            next(iter(self._holders)).forget()

    def release(self, holder: Holder) -> None:
        """This one holds nothing any more."""
        self.bytes -= self._holders.pop(holder, 0)

    def age(self) -> None:
        """Take back what was not used since this was last called."""
        for holder in list(self._holders):
            if holder.used:
                holder.used = False
            else:
                holder.forget()
