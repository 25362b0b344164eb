"""Puts the message-format of transfers (AMQP 1.0 section 2.7.5) into the frames that Proton wrote. Pure.

Proton always writes message-format 0. A delivery with another one is given to it under a longer tag, which
holds the format, too:

    a0 10 <tag: 12 bytes> <format: 4 bytes> 43      as Proton writes it
    a0 0c <tag: 12 bytes> 70 <format: 4 bytes>      as it is sent

Both have 19 bytes, so that no frame changes its size. A peer and Proton tell each other of a delivery by its
delivery-id, never by its tag, unless a link is resumed, which this node does not do.

Law: only transfers are changed, never what is in a message: the bytes are read frame by frame.
"""

import re
from typing import Final

from amqp_streams.wire.frames import HEADER_SIZE

TAG_BYTES: Final = 12
FORMAT_BYTES: Final = 4

_FRONT_BYTES_MAX: Final = 64
"""How many bytes a frame has at most up to the end of its transfer's message-format."""
_UINT: Final = rb"(?>\x43|\x52.|\x70.{4})"
_LONG_TAG: Final = re.compile(
    rb"\x00\x53\x14(?>\xc0..|\xd0.{8})"
    + _UINT
    + _UINT
    + rb"\xa0\x10(?P<tag>.{%d})(?P<format>.{%d})\x43" % (TAG_BYTES, FORMAT_BYTES),
    re.DOTALL,
)


class FormatWriter:
    """Changes the bytes that one connection sends, beginning at the start of a frame."""

    __slots__ = ("_cut", "_rest")

    def __init__(self) -> None:
        self._rest = 0
        """How many bytes remain of a frame whose beginning was processed."""
        self._cut = b""
        """The beginning of a frame, too short to be processed."""

    def feed(self, block: bytes) -> bytes:
        """Return the bytes to send instead.

        If the beginning of a frame is incomplete, its bytes are returned with the next block.
        """
        # Most bytes are events: they are copied at most once, and not at all if no transfer changes.
        data = self._cut + block if self._cut else block
        at, end = self._rest, len(data)
        view, parts, kept = memoryview(data), list[memoryview | bytes](), 0
        while end - at >= HEADER_SIZE:
            size = int.from_bytes(data[at : at + 4])
            # The tag may lie in the bytes that follow: the frame waits until its front is complete.
            if end - at < min(size, _FRONT_BYTES_MAX):
                break
            match = _LONG_TAG.match(data, at + HEADER_SIZE, at + size)
            if match is not None:
                # Both forms have the same length, so no other position moves.
                parts.append(view[kept : match.start("tag") - 2])
                parts.append(b"\xa0\x0c" + match["tag"] + b"\x70" + match["format"])
                kept = match.end()
            at += size
        whole = min(at, end)
        self._rest = at - whole
        self._cut = data[whole:]
        if not parts and whole == end:
            return data
        return b"".join((*parts, view[kept:whole]))
