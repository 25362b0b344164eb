"""Messages that follow each other in one buffer, as the log stores them. Pure.

Law: a `Packed` equals the list of its messages. It makes an object of a message only when that message is
looked at, so code that passes on thousands of messages does nothing for each of them.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from operator import sub
from struct import calcsize, iter_unpack
from typing import Final, overload

_CUT_AT_ONCE: Final = 16


class Packed(Sequence[bytes]):
    """Message i is from byte `ends[i]` to before byte `ends[i + 1]` of `buffer`.

    `ends` is a range if all messages have the same size, which is not 0; otherwise a list. Both are sliced
    and searched without a step for each message.
    """

    __slots__ = ("buffer", "ends")

    def __init__(self, buffer: bytes, ends: "range | list[int]") -> None:
        assert ends, "there is an end in front of the first message as well"
        assert 0 <= ends[0] <= ends[-1] <= len(buffer), "the messages are in the buffer"
        self.buffer: Final = buffer
        self.ends: Final = ends

    @property
    def body_bytes(self) -> int:
        """The bytes of all messages."""
        return self.ends[-1] - self.ends[0]

    def sizes(self) -> "array[int]":
        """Return the size of each message."""
        ends = self.ends
        if isinstance(ends, range):
            return array("I", [ends.step]) * (len(ends) - 1)
        return array("I", map(sub, ends[1:], ends))

    def within(self, size: int, overhead: int = 0, first: int = 0) -> int:
        """How many messages have together at most `size` bytes, with an `overhead` each.

        `first`: the index of the first message that counts. The others are not copied.
        """
        ends, count = self.ends, len(self) - first
        begin = ends[first]
        # All fit: the usual case, without a search.
        if ends[-1] - begin + overhead * count <= size:
            return count
        return bisect_right(
            range(1, count + 1), size, key=lambda part: ends[first + part] - begin + overhead * part
        )

    def body(self) -> bytes | memoryview:
        """Return the bytes of all messages. They are not copied."""
        begin, end = self.ends[0], self.ends[-1]
        whole = begin == 0 and end == len(self.buffer)
        return self.buffer if whole else memoryview(self.buffer)[begin:end]

    def all_begin(self, front: bytes, first: int, last: int) -> bool:
        """Whether each message begins with `front`, then a byte from `first` to `last`."""
        ends, starts, size, count = self.ends, self.buffer, len(front) + 1, len(self)
        if isinstance(ends, range):
            begin, step = ends[0], ends.step
        elif min(self.sizes(), default=size) >= size:
            fronts = map(starts.__getitem__, map(slice, ends[:-1], map(size.__add__, ends)))
            starts, begin, step = b"".join(fronts), 0, size
        else:
            step = 0
        if step < size:
            return False
        # A slice has the same byte of every message: a comparison in C, however many there are.
        stop = begin + step * count
        columns = [starts[begin + place : stop : step] for place in range(size)]
        if any(columns[place] != front[place : place + 1] * count for place in range(size - 1)):
            return False
        return not columns[-1].translate(None, bytes(range(first, last + 1)))

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __iter__(self) -> Iterator[bytes]:
        ends = self.ends
        if isinstance(ends, range):
            return iter(cut_equal(memoryview(self.buffer)[ends[0] : ends[-1]], ends.step))
        return map(self.buffer.__getitem__, map(slice, ends[:-1], ends[1:]))

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> "Sequence[bytes]": ...
    def __getitem__(self, index: "int | slice") -> "bytes | Sequence[bytes]":
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            if step != 1:
                return list(self)[index]
            return Packed(self.buffer, self.ends[first : max(first, last) + 1])
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(index)
        return self.buffer[self.ends[at] : self.ends[at + 1]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        return f"Packed({list(self)!r})"


def pack(buffer: bytes, ends: "range | list[int]") -> Packed:
    """The messages between these ends, in a copy: the rest of the buffer need not be kept."""
    first, last = ends[0], ends[-1]
    moved = (
        range(0, last - first + 1, ends.step)
        if isinstance(ends, range)
        else list(map((-first).__add__, ends))
    )
    return Packed(buffer[first:last], moved)


def packed_copy(messages: Sequence[bytes]) -> Packed:
    """Copy messages, at least one, into one buffer."""
    sizes = list(map(len, messages))
    size = sizes[0]
    alike = size > 0 and sizes.count(size) == len(sizes)
    ends = range(0, size * len(sizes) + 1, size) if alike else list(accumulate(sizes, initial=0))
    return Packed(b"".join(messages), ends)


def largest_bytes(messages: Sequence[bytes]) -> int:
    """The bytes of the largest message, of at least one."""
    return max(messages.sizes() if isinstance(messages, Packed) else map(len, messages))


def total_bytes(messages: Sequence[bytes]) -> int:
    """The bytes of all messages."""
    return messages.body_bytes if isinstance(messages, Packed) else sum(map(len, messages))


def joined(messages: Sequence[bytes]) -> bytes | memoryview:
    """The bytes of all messages, one after another; those of a `Packed` are not copied."""
    return messages.body() if isinstance(messages, Packed) else b"".join(messages)


def join_messages(parts: "Sequence[Sequence[bytes]]") -> Sequence[bytes]:
    """One sequence of all messages of the parts, in this order: a `Packed` if all parts are."""
    if len(parts) == 1:
        return parts[0]
    packed = [part for part in parts if isinstance(part, Packed)]
    if not packed or len(packed) < len(parts):
        return list(chain.from_iterable(parts))
    buffer = b"".join([part.body() for part in packed])
    steps = {part.ends.step if isinstance(part.ends, range) else 0 for part in packed}
    if len(steps) == 1 and (step := steps.pop()):
        return Packed(buffer, range(0, len(buffer) + 1, step))
    sizes = chain.from_iterable([part.sizes() for part in packed])
    return Packed(buffer, list(accumulate(sizes, initial=0)))


def cut_equal(view: memoryview, size: int, front: str = "") -> list[bytes]:
    """Return the items of a buffer that all have `size` bytes. `front`: what `struct` skips before each."""
    item = f"{front}{size}s"
    # One format cuts many items, without Python code and without a tuple for each item.
    whole = len(view) - len(view) % (calcsize(item) * _CUT_AT_ONCE)
    found = list(chain.from_iterable(iter_unpack(item * _CUT_AT_ONCE, view[:whole])))
    found += chain.from_iterable(iter_unpack(item, view[whole:]))
    return found
