"""Pointers to Proton's objects, and the memory that its C functions fill.

Other packages only pass the pointers on.
"""

import threading
from typing import Any, Final

from cproton_ffi import ffi

from amqp_streams.wire.outgoing_formats import FORMAT_BYTES, TAG_BYTES

Pointer = Any
"""A pointer to a connection, session, link, delivery or event. As long as such an object exists,
an equal pointer is the same Python object.
"""
NULL: Final = ffi.NULL
BUFFER_BYTES: Final = 1 << 20
_NUMBER_BYTES: Final = 8

# Pages that are never used are never mapped, because the memory is not cleared.
_allocate: Final = ffi.new_allocator(should_clear_after_alloc=False)


class Tag:
    """The memory of a delivery tag, reused for each delivery. Proton copies the bytes."""

    __slots__ = ("_pointer", "_start", "bytes", "value")

    def __init__(self, size: int) -> None:
        self.bytes: Final = bytearray(size)
        self._start: Final = ffi.from_buffer("char[]", self.bytes)
        self._pointer: Final = ffi.new("pn_bytes_t *", {"size": size, "start": self._start})
        self.value: Final[Pointer] = self._pointer[0]


class _Scratch(threading.local):
    """Memory for the duration of one call. One for each thread, because other threads run during C calls."""

    def __init__(self) -> None:
        self.buffer: Final[Pointer] = _allocate("char[]", BUFFER_BYTES)
        self.view: Final[Any] = ffi.buffer(self.buffer)
        self.number_tag: Final = Tag(_NUMBER_BYTES)
        self.record_tag: Final = Tag(TAG_BYTES)
        self.formatted_tag: Final = Tag(TAG_BYTES + FORMAT_BYTES)


scratch: Final = _Scratch()
