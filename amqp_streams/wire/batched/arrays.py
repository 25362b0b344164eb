"""Arrays of numbers and data sections: the parts of a batch. All loops over events run in C.

An array is `f0 <size> <count> <constructor>` and items of one width, big-endian. A section of an event is
`00 53 75 b0 <size> <message>`, always with a size of 4 bytes.
"""

import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from struct import Struct, iter_unpack
from typing import Final

from amqp_streams.errors import WireError
from amqp_streams.wire.batched.packed import Packed, cut_equal
from amqp_streams.wire.decoder import decode
from amqp_streams.wire.layout import DATA, DATA_BINARY32, sections
from amqp_streams.wire.types import Array, Value

SECTION_BYTES: Final = 8
"""How many bytes of a section are in front of its message."""
JoinSections = Callable[[bytes, bytes, int, "array[int]"], bytes]
"""`join_sections` for messages in one buffer, compiled: head, buffer, byte of the first message, sizes."""
SplitSections = Callable[[bytes, int, "array[int]"], bytes | None]
"""`split_sections` into one buffer, compiled: message, byte of the first section, sizes of all contents. None
if the sections begin otherwise.
"""

_SWAP: Final = sys.byteorder == "little"
_ARRAY: Final = Struct(">BIIB")
_ARRAY_CODE: Final = 0xF0
_LENGTH: Final = Struct(">I")
_FIXED: Final = {0x80: "Q", 0x83: "q", 0x70: "I"}
"""Constructors of array items that are read as a block, with the type code of `array`."""


@dataclass(frozen=True, slots=True, eq=False)
class Sections:
    """Data sections with known sizes, from byte `start` of a message to its end.

    `sizes`: of their contents. SECTION_BYTES precede each content.
    """

    message: bytes
    start: int
    sizes: "array[int]"

    def __post_init__(self) -> None:
        """Raises: WireError if the sizes do not add up."""
        # One comparison replaces a check of each section: with this sum, no slice can leave the message.
        found = len(self.message) - self.start
        if sum(self.sizes) + SECTION_BYTES * len(self.sizes) != found:
            raise WireError(f"the sizes in a batch are not those of its {found} bytes of data sections")

    def contents(self) -> list[bytes]:
        """Return the content of each section."""
        message, at, sizes = self.message, self.start, self.sizes
        size = sizes[0]
        if are_equal(sizes):
            return cut_equal(memoryview(message)[at:], size, f"{SECTION_BYTES}x")
        ends = list(accumulate([size + SECTION_BYTES for size in sizes], initial=at))
        starts = map(SECTION_BYTES.__add__, ends)
        return list(map(message.__getitem__, map(slice, starts, ends[1:])))


def sizes_of(messages: Sequence[bytes]) -> "array[int]":
    """Return the sizes of messages."""
    if isinstance(messages, Packed):
        return messages.sizes()
    # A list is filled faster than an array, and an array of equal numbers is a repetition.
    sizes, count = list(map(len, messages)), len(messages)
    equal = count > 0 and sizes.count(sizes[0]) == count
    return array("I", sizes[:1]) * count if equal else array("I", sizes)


def are_equal(numbers: "array[int]") -> bool:
    """Whether all numbers are the same. Arrays are compared without an object for each number."""
    return numbers == numbers[:1] * len(numbers)


def write_array(code: int, numbers: "array[int]") -> bytes:
    """Encode an array. `code`: the constructor of its items, of the width of `numbers`."""
    data = _bytes(numbers)
    return _ARRAY.pack(_ARRAY_CODE, 5 + len(data), len(numbers), code) + data


def read_array(message: bytes, at: int, end: int) -> "tuple[array[int], int] | None":
    """Read an array of numbers that begins at byte `at`. Returns it and the byte after it; None if it has
    other items.

    Raises:
        WireError: the sizes contradict each other.
    """
    if end - at < _ARRAY.size:
        return None
    _, size, count, code = _ARRAY.unpack_from(message, at)
    kind = _FIXED.get(code)
    if kind is None:
        return None
    numbers = array(kind)
    start, stop = at + _ARRAY.size, at + 5 + size
    # Before the copy: a size that is too large must not cause an allocation.
    if stop > end or stop - start != count * numbers.itemsize:
        raise WireError(f"the array at byte {at} has not the bytes of its {count} items")
    numbers.frombytes(memoryview(message)[start:stop])
    if _SWAP:
        numbers.byteswap()
    return numbers, stop


def numbers_of(value: Value, code: str) -> "array[int]":
    """Return the numbers of an array that was not written in the form that `read_array` reads."""
    try:
        return array(code, value.items if isinstance(value, Array) else ())  # type: ignore[arg-type]  # what is not a number is caught
    except (TypeError, OverflowError):
        raise WireError("an array of a batch has other items than numbers of its kind") from None


def join_sections(
    head: bytes, sizes: "array[int]", messages: Sequence[bytes], compiled: JoinSections | None = None
) -> bytes:
    """Return `head`, then a section for each message. One step: this is most of the cost of a batch.

    `compiled`: what does the same for messages in one buffer.
    """
    count = len(sizes)
    if compiled is not None and isinstance(messages, Packed):
        return compiled(head, messages.buffer, messages.ends[0], sizes)
    # Events of one size need only one separator, so one `join` writes the whole body.
    if are_equal(sizes):
        return (DATA_BINARY32 + _LENGTH.pack(sizes[0])).join([head, *messages])
    # Three parts for each event: the head of its section, its size, its bytes. The slices are filled in C.
    parts: list[bytes] = [DATA_BINARY32] * (3 * count)
    parts[1::3] = list(chain.from_iterable(iter_unpack("4s", _bytes(sizes))))
    parts[2::3] = messages
    # The first element also carries what precedes the body.
    parts[0] = head + DATA_BINARY32
    return b"".join(parts)


def split_sections(
    message: bytes, at: int, sizes: "array[int]", compiled: SplitSections | None = None
) -> Sequence[bytes]:
    """Return the messages of sections with known sizes, from byte `at` to the end.

    `compiled`: what does the same into one buffer, which is then returned as a `Packed`.

    Raises:
        WireError: the sections are others.
    """
    found = Sections(message, at, sizes)
    if compiled is None:
        if heads_match(message, at, sizes):
            return found.contents()
    else:
        buffer = compiled(message, at, sizes)
        if buffer is not None:
            equal = sizes[0] and are_equal(sizes)
            ends = range(0, len(buffer) + 1, sizes[0]) if equal else list(accumulate(sizes, initial=0))
            return Packed(buffer, ends)
    raise WireError("the data sections of a batch are not those of its sizes")


def heads_match(message: bytes, at: int, sizes: "array[int]") -> bool:
    """Whether sections with these sizes begin at byte `at`. The caller has checked that the sizes add up."""
    count, size = len(sizes), sizes[0]
    if are_equal(sizes):
        # A slice has the same byte of every head: eight comparisons in C, whatever the number of events.
        head = DATA_BINARY32 + _LENGTH.pack(size)
        return all(
            message[at + place :: SECTION_BYTES + size] == head[place : place + 1] * count
            for place in range(SECTION_BYTES)
        )
    starts = list(accumulate([size + SECTION_BYTES for size in sizes], initial=at))[:-1]
    heads = map(message.__getitem__, map(slice, starts, map(SECTION_BYTES.__add__, starts)))
    expected = [DATA_BINARY32] * (2 * len(sizes))
    expected[1::2] = list(chain.from_iterable(iter_unpack("4s", _bytes(sizes))))
    return b"".join(heads) == b"".join(expected)


def walk_sections(message: bytes, count: int) -> list[bytes]:
    """Return the contents of data sections with unknown sizes, as other implementations may write them."""
    if not count:
        return []
    found = [decode(message, section.start)[0] for section in sections(message) if section.code == DATA]
    return [value.value for value in found]  # type: ignore[union-attr,misc]  # a data section is described, and binary


def _bytes(numbers: "array[int]") -> bytes:
    if _SWAP:
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()
