"""The bytes that a client sent in one read, cut into pieces of about the same work.

A byte of a large frame costs little, and a tiny frame costs about as much as a large one. So the size of the
next piece follows from the frames of the last one.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Final

SMALL_BYTES: Final = 2048
"""So little is processed at once, however busy the node is."""
PIECE_MIN: Final = 8 << 10
PIECE_MAX: Final = 256 << 10
"""Bounds of the size of a piece."""
FRAMES: Final = 400
"""How many frames a piece may have: about a millisecond of work."""


class Pieces:
    """Cuts blocks, and keeps what must wait."""

    __slots__ = ("_frames", "_least", "_rest", "_size")

    def __init__(self, *, least: int = PIECE_MIN, frames: int = FRAMES) -> None:
        """`least`: the size of the first piece. `frames`: how many of them a piece may have."""
        self._rest = bytearray()
        self._least: Final = least
        self._frames: Final = frames
        self._size = least

    @property
    def waiting(self) -> int:
        """How many bytes wait."""
        return len(self._rest)

    def take_all(self) -> memoryview:
        """Return the bytes that wait. They wait no longer."""
        rest, self._rest = self._rest, bytearray()
        return memoryview(rest)

    def keep(self, block: memoryview | bytes) -> None:
        """Let these bytes wait, after those that wait already."""
        self._rest += block

    def clear(self) -> None:
        """Drop the bytes that wait."""
        self._rest = bytearray()

    def feed(
        self, block: memoryview, until: float, feed: Callable[[memoryview], bool], *, at_once: bool
    ) -> bool:
        """Feed a block piece by piece, until this `perf_counter` or until `feed` returns False.

        The rest waits. `at_once`: at least one piece is fed. A small block is fed in any case, so that a
        client with little to say does not wait for others. Returns the last result of `feed`.
        """
        at, more = 0, True
        at_once = at_once or len(block) <= SMALL_BYTES
        while more and at < len(block) and (at_once or perf_counter() <= until):
            at_once = False
            piece = self.cut(block[at:])
            at += len(piece)
            more = feed(piece)
        if at < len(block):
            self.keep(block[at:])
        return more

    def cut(self, block: memoryview) -> memoryview:
        """Return the next piece of a block: its front."""
        return block[: self._size]

    def learn(self, size: int, frames: int) -> None:
        """The last piece had this size and this many frames, 0 if it is the middle of a large one."""
        wanted = PIECE_MAX if frames == 0 else self._frames * size // frames
        # In steps, so that a client does not get a large piece for small frames after one large frame.
        self._size = max(self._least, min(wanted, 2 * self._size, PIECE_MAX))
