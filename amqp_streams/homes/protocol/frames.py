"""Frames between nodes: where each begins and ends in the bytes of a connection. Pure.

Layout: length (4 bytes, big-endian, of what follows), kind (1 byte), body (a JSON object in UTF-8).

Laws: no frame is larger than `FRAME_BYTES_MAX`, and none is larger than `HELLO_BYTES_MAX` before the other
side is authenticated. A kind that this version does not know is ignored, so that nodes of two versions work
together.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from amqp_streams.errors import AmqpStreamsError

FRAME_BYTES_MAX: Final = 1 << 20
"""Kind and body of one frame."""
HELLO_BYTES_MAX: Final = 4096
"""Kind and body of a frame of a node that has not proved yet that it is one."""
_LENGTH_BYTES: Final = 4


class FrameError(AmqpStreamsError):
    """Another node sent bytes that do not follow the protocol. The message names the field or the bytes."""


class Kind(IntEnum):
    """What a frame is. The numbers are the protocol's, and are never used again."""

    HELLO = 1
    """Who the sender is: first in each direction."""
    PROOF = 2
    """That the sender knows the secret: second in each direction."""
    REFUSED = 3
    """Why the sender closes the connection."""
    BEAT = 4
    """That the sender is there, if it has nothing else to say."""
    REPORT = 5
    """A report, or a part of one: from the node that connected."""
    ANSWER = 6
    """An answer, or a part of one: from the node that was connected to."""
    ASKED = 7
    """A change that a user asks for: from the node that connected, if the other one takes changes."""
    OUTCOME = 8
    """The outcome of a change: from the node that was connected to."""
    INQUIRY = 9
    """An inquiry, or a part of one: from the node that connected, if the other one takes inquiries."""
    DESCRIPTION = 10
    """The answer to an inquiry, or a part of one: from the node that was connected to."""


@dataclass(frozen=True, slots=True)
class Frame:
    """`kind`: a `Kind`, or the number of a later version."""

    kind: int
    body: bytes


def encoded(kind: Kind, body: bytes) -> bytes:
    """The bytes of a frame."""
    length = 1 + len(body)
    assert length <= FRAME_BYTES_MAX, "the maker of a body bounds it"
    return length.to_bytes(_LENGTH_BYTES) + bytes([kind]) + body


class Splitter:
    """The frames in the bytes of one direction. It holds at most one frame more than what it was fed last."""

    def __init__(self) -> None:
        self.bytes_max = HELLO_BYTES_MAX
        """The largest frame now: set it to `FRAME_BYTES_MAX` when the other side is authenticated."""
        self._data: Final = bytearray()

    @property
    def has_bytes(self) -> bool:
        """Whether there are bytes after the last frame."""
        return bool(self._data)

    def feed(self, data: bytes) -> None:
        """More bytes have come."""
        self._data.extend(data)

    def next(self) -> Frame | None:
        """The next frame. None: it is not complete.

        Raises:
            FrameError: the next bytes are not a frame, or are a frame that is too large.
        """
        if len(self._data) < _LENGTH_BYTES:
            return None
        length = int.from_bytes(self._data[:_LENGTH_BYTES])
        if not 1 <= length <= self.bytes_max:
            message = f"a frame has from 1 to {self.bytes_max} bytes, and this one would have {length}"
            raise FrameError(message)
        end = _LENGTH_BYTES + length
        if len(self._data) < end:
            return None
        frame = Frame(self._data[_LENGTH_BYTES], bytes(self._data[_LENGTH_BYTES + 1 : end]))
        del self._data[:end]
        return frame
