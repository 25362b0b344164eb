"""Cuts pieces out of columns of bytes, in Arrow: no step of Python for each row. Pure, except for Arrow.

A column is seen as its bytes and, for each row, where the row begins and how long it is. All positions are
checked before they are used.
"""

from array import array
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from amqp_streams.client.raw import SECTION_BYTES, Sections

_WORD: Final = 4


@dataclass(frozen=True, slots=True)
class Slices:
    """A piece of bytes for each row. The pieces are in the order of the rows and do not overlap.

    `data`: bytes as uint8. `starts` and `ends`: for each row, int32 indexes into `data`.
    """

    data: pa.UInt8Array
    starts: pa.Int32Array
    ends: pa.Int32Array

    @classmethod
    def of(cls, column: pa.BinaryArray) -> Self:
        """Return the rows of a column without nulls."""
        _, offsets, content = column.buffers()
        starts, ends = (
            pa.Array.from_buffers(pa.int32(), len(column), [None, offsets.slice(_WORD * first)])
            for first in (column.offset, column.offset + 1)
        )
        return cls(_bytes_as_numbers(content), starts, ends)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def sizes(self) -> pa.Int32Array:
        """The number of bytes of each row."""
        return pc.subtract(self.ends, self.starts)

    def column(self) -> pa.BinaryArray:
        """Return the pieces as a column, which has a copy of them."""
        count = len(self)
        if not count:
            return pa.array([], pa.binary())
        content = self.data.buffers()[1]
        bounds = numbers_in(self.starts[:1]) + numbers_in(self.ends)
        gap = self._gap()
        if gap is not None:
            # Each piece with the gap in front of it is a value of a column: the gaps are cut off.
            bounds[0] -= gap
            column = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(bounds), content])
            return pc.binary_slice(column, gap, gap + pc.max(self.sizes).as_py()) if gap else column
        # The pieces and the gaps between them follow each other, as the values of a column must.
        bounds = array("i", bytes(2 * _WORD * count))
        bounds[0::2], bounds[1::2] = numbers_in(self.starts), numbers_in(self.ends)
        both = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), content])
        return both.take(_even(count))

    def _gap(self) -> int | None:
        """Return the number of bytes in front of each piece; None if it differs."""
        first: int = self.starts[0].as_py()
        if len(self) == 1:
            return 0
        gaps = pc.min_max(pc.subtract(self.starts[1:], self.ends[:-1])).as_py()
        return gaps["min"] if gaps["min"] == gaps["max"] <= first else None

    def bytes_at(self, at: pa.Int32Array) -> pa.UInt8Array:
        """Return the byte at an index of `data` for each row."""
        return self.data.take(at)

    def words_at(self, at: pa.Int32Array) -> pa.UInt32Array:
        """Return four bytes from an index of `data` for each row, as a number in the order of the wire."""
        word = pa.scalar(0, pa.uint32())
        for index in range(_WORD):
            byte = self.bytes_at(pc.add(at, pa.scalar(index, pa.int32()))).cast(pa.uint32())
            word = pc.bit_wise_or(pc.shift_left(word, pa.scalar(8, pa.uint32())), byte)
        return word


def contents_of(sections: Sections) -> pa.BinaryArray:
    """Return the contents of the data sections of a batch as a column."""
    sizes = pa.Array.from_buffers(pa.uint32(), len(sections.sizes), [None, pa.py_buffer(sections.sizes)])
    sizes = sizes.cast(pa.int32())
    first = pa.scalar(sections.start, pa.int32())
    ends = pc.cumulative_sum(pc.add(sizes, pa.scalar(SECTION_BYTES, pa.int32())), start=first)
    data = _bytes_as_numbers(pa.py_buffer(sections.message))
    return Slices(data, pc.subtract(ends, sizes), ends).column()


def numbers_in(column: pa.Int32Array) -> "array[int]":
    """Return a copy of the numbers of a column without nulls."""
    found = array("i")
    start = _WORD * column.offset
    found.frombytes(memoryview(column.buffers()[1])[start : start + _WORD * len(column)])
    return found


@lru_cache(maxsize=8)
def _even(count: int) -> pa.Int32Array:
    """Return the first even numbers. Batches mostly have the same size, so they are kept."""
    return pa.array(range(0, 2 * count, 2), pa.int32())


def _bytes_as_numbers(content: pa.Buffer | None) -> pa.UInt8Array:
    if content is None:
        return pa.array([], pa.uint8())
    return pa.Array.from_buffers(pa.uint8(), content.size, [None, content])
