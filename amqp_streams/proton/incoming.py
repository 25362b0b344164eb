"""Bytes into one of Proton's transports, and how far they are whole frames."""

from typing import Final

from cproton_ffi import lib

from amqp_streams.proton.pointers import Pointer
from amqp_streams.wire.formats import PROTOCOL_HEADER_BYTES


class Incoming:
    """What a transport is given, from the protocol header on.

    `incomplete`: bytes of what was pushed that are of a frame which is not complete. Negative: of the
    protocol header so many are missing.
    """

    __slots__ = ("_frames", "_room", "_transport", "incomplete")

    def __init__(self, transport: Pointer) -> None:
        self._transport: Final = transport
        self._room: int = lib.pn_transport_capacity(transport)
        self._frames: int = lib.pn_transport_get_frames_input(transport)
        self.incomplete = -PROTOCOL_HEADER_BYTES

    def push(self, start: Pointer, size: int) -> int:
        """Give it the first of these bytes, which it handles; how many that were. 0: it takes no more."""
        transport = self._transport
        taken: int = lib.pn_transport_push(transport, start, size)
        if taken <= 0:
            return 0
        before, known = self._room, self._frames
        room, frames = lib.pn_transport_capacity(transport), lib.pn_transport_get_frames_input(transport)
        self._room, self._frames = room, frames
        if (
            room < 0
        ):  # an error ended the connection: what was whole before it counts, and where the rest begins does not matter
            self.incomplete = 0
        elif frames == known:  # the buffer may have grown, but all that it took is of one frame
            self.incomplete += taken
        else:
            waited = self.incomplete if self.incomplete >= 0 else self.incomplete + PROTOCOL_HEADER_BYTES
            self.incomplete = waited + before - room
        return taken
