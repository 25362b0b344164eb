"""Passes received bytes to Proton and computes where frames end in them."""

from typing import Final

from cproton_ffi import lib

from amqp_streams.proton import compiled
from amqp_streams.proton.pointers import Pointer
from amqp_streams.wire.formats import PROTOCOL_HEADER_BYTES, Plainness

plainness: Final[Plainness | None] = None if compiled.loops is None else compiled.loops.plainness
"""For `FormatFinder`. Without the compiled loops, its regular expression searches each block."""


class Incoming:
    """The input of one transport, beginning with the protocol header.

    `incomplete`: how many of the last pushed bytes belong to a frame that is not complete. Negative: how many
    bytes of the protocol header are missing.
    """

    __slots__ = ("_frames", "_room", "_transport", "incomplete")

    def __init__(self, transport: Pointer) -> None:
        self._transport: Final = transport
        self._room: int = lib.pn_transport_capacity(transport)
        self._frames: int = lib.pn_transport_get_frames_input(transport)
        self.incomplete = -PROTOCOL_HEADER_BYTES

    def push(self, start: Pointer, size: int) -> int:
        """Pass bytes to Proton. Returns how many it accepted; 0: it accepts no more."""
        transport = self._transport
        taken: int = lib.pn_transport_push(transport, start, size)
        if taken <= 0:
            return 0
        before, known = self._room, self._frames
        room, frames = lib.pn_transport_capacity(transport), lib.pn_transport_get_frames_input(transport)
        self._room, self._frames = room, frames
        if room < 0:
            # An error ended the connection: what was whole before it counts, and where the rest begins does
            # not matter.
            self.incomplete = 0
        elif frames == known:  # the buffer may have grown, but all bytes belong to one frame
            self.incomplete += taken
        else:
            waited = self.incomplete if self.incomplete >= 0 else self.incomplete + PROTOCOL_HEADER_BYTES
            self.incomplete = waited + before - room
        return taken
