"""Finds names with a NUL character in the open and attach frames of a connection. Pure.

Proton returns names as C strings, which end at a NUL: `one\\0x` reads as `one`. This module records such
names as Proton returns them. A message whose content looks like an attach frame is mistaken for one; this can
only refuse links of the client that sent it.
"""

import re
from collections.abc import Iterator
from typing import Final

from amqp_streams.errors import WireError
from amqp_streams.wire.decoder import skip
from amqp_streams.wire.frames import HEADER_SIZE

_FRAME_BYTES_MAX: Final = 64 << 10
"""Larger frames are not searched."""
# The names come from the peer: this bounds the memory that they take.
_NAMES_MAX: Final = 1024
_SEAM_BYTES: Final = HEADER_SIZE + 3
"""How many bytes may be split between two blocks: up to the constructor of a performative's list, less one.
"""
_OPEN: Final = 0x10
_HEADS: Final = {0xC0: 3, 0xD0: 9}
"""How many bytes precede the first item of a list, by its constructor."""
_SOURCE: Final = 5
_OPENS: Final = re.compile(rb"\x00\x53[\x10\x12](?=[\xc0\xd0])")
_ATTACHES: Final = re.compile(rb"\x00\x53\x12(?=[\xc0\xd0])")


class NulFinder:
    """Searches the bytes of one connection.

    `names`: the names in frames with a NUL, each cut at its NUL. Of an open frame the container-id; of an
    attach frame the name and the addresses of source and target.
    """

    __slots__ = ("_kept", "names")

    def __init__(self) -> None:
        self._kept = b""
        self.names: Final[set[tuple[str, ...]]] = set()

    def feed(self, block: memoryview | bytes, *, opened: bool, plain: bool = False) -> None:
        """Search received bytes.

        `opened`: an open frame came before them. `plain`: it is certain that no attach begins in them, unless
        it begins less than 12 bytes before their end.
        """
        pattern, kept = _ATTACHES if opened else _OPENS, self._kept
        if (
            # Only if the boundary matters is the block copied. Else the search runs on the received memory.
            len(kept) > _SEAM_BYTES
            or (kept and pattern.search(kept + bytes(block[:_SEAM_BYTES])))
            or len(block) < _SEAM_BYTES
        ):
            block, plain = kept + bytes(block), False
        self._kept = bytes(block[-_SEAM_BYTES:]) if plain and opened else self._look(block, pattern)

    def _look(self, block: memoryview | bytes, pattern: re.Pattern[bytes]) -> bytes:
        """Record the names in whole frames. Returns the bytes to search again with the next block."""
        at = 0
        while match := pattern.search(block, at):
            at, begin = match.end(), match.start() - HEADER_SIZE
            # Not the header of an AMQP frame: bytes of a message that only look like a performative.
            if begin < 0 or block[begin + 4 : begin + 6] != b"\x02\x00":
                continue
            end = begin + int.from_bytes(block[begin : begin + 4])
            # A size that is too large would keep the bytes of all later blocks.
            if not at < end <= begin + _FRAME_BYTES_MAX:
                continue
            # The frame continues in the next block, and is searched again then.
            if end > len(block):
                return bytes(block[begin:])
            texts = list(_names(bytes(block[begin + HEADER_SIZE : end])))
            if any(b"\0" in each for each in texts) and len(self.names) < _NAMES_MAX:
                self.names.add(tuple(each.partition(b"\0")[0].decode("utf-8", "replace") for each in texts))
            at = end
        return bytes(block[-_SEAM_BYTES:])


def _names(body: bytes) -> Iterator[bytes]:
    """Yield the texts of an open or attach frame that Proton returns as C strings.

    Stops where the frame is not valid.
    """
    try:
        at = _first(body, 3)
        yield _text(body, at)
        if body[2] == _OPEN:
            return
        # The fields between the name and the source are skipped, not decoded.
        for _ in range(_SOURCE):
            at = skip(body, at)
        for _ in ("source", "target"):
            listed = body[at] == 0 and body[fields := skip(body, at + 1)] in _HEADS  # described, with fields
            yield _text(body, _first(body, fields)) if listed else b""
            at = skip(body, at)
    except (WireError, IndexError):
        # Proton refuses what is not valid.
        return


def _first(body: bytes, at: int) -> int:
    """Return where the first item of the list at byte `at` begins."""
    return at + _HEADS[body[at]]


def _text(body: bytes, at: int) -> bytes:
    """Return the bytes of a string or symbol; empty for another value."""
    if body[at] in (0xA1, 0xA3):
        return body[at + 2 : at + 2 + body[at + 1]]
    if body[at] in (0xB1, 0xB3):
        return body[at + 5 : at + 5 + int.from_bytes(body[at + 1 : at + 5])]
    return b""
