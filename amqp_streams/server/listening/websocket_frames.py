"""The frames of WebSockets: limits on frames without content, and on the frames that are parsed at once.

Law: however many clients send tiny frames, others are served in between.
"""

from collections.abc import Callable
from typing import Any, Final

import uvicorn
from uvicorn._types import ASGIReceiveEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame

from amqp_streams.server.links.turns import Iteration, Turns
from amqp_streams.server.listening.pieces import Pieces

# How many pings and empty frames a client may send per second: they cost work and carry nothing. Clients ping
# every few seconds. 1,000 a second of 100 clients occupied the node completely.
EMPTY_FRAMES_MAX: Final = 100
# How many received bytes and frames are parsed at once. All frames in them become objects, in about 5
# microseconds each, and the smallest frames have 6 bytes.
PARSED_BYTES: Final = 1 << 10
PARSED_FRAMES: Final = 100
# If more bytes than this wait to be sent, a ping ends the connection: its client does not read the pongs. The
# queue below the WebSocket otherwise holds at most about one message.
PONG_BYTES_MAX: Final = 256 << 10
TRANSPORT: Final = "transport"
"""A key of the state of the application: a function that returns the transport of the WebSocket."""
FRAMES: Final = "frames"
"""A key of that state: the `FrameTurns`."""


class FrameTurns:
    """The time in each loop iteration that all WebSockets share for their frames."""

    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        self.iteration: Final = Iteration(soon)
        self.turns: Final = Turns(soon, self.iteration, "websocket")


class WebSocketFrames(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, changed in two ways.

    The application can reach the transport, to see how much waits in it, to read the client's certificate,
    and to cut the connection. And frames are limited: pongs that the client does not read, and too many empty
    frames, end the connection. All connections together parse frames for a millisecond in each loop
    iteration (`FrameTurns`).
    """

    def __init__(
        self, config: uvicorn.Config, server_state: ServerState, app_state: dict[str, Any], **more: Any
    ) -> None:
        super().__init__(config, server_state, {**app_state, TRANSPORT: lambda: self.transport}, **more)
        self._empty = 0
        self._second_ends = 0.0
        self._pieces: Final = Pieces(least=PARSED_BYTES, frames=PARSED_FRAMES)
        self._parsed = 0
        """Frames of the piece that is parsed now."""
        self._shared: Final[FrameTurns] = app_state[FRAMES]
        self._rest = bytearray()
        """What has arrived of a message after its first frame."""

    def data_received(self, data: bytes) -> None:
        if self._pieces.waiting:
            self._pieces.keep(data)  # the transport had received it before the pause
            self._pause()
        else:
            self._take(memoryview(data), self._shared.iteration.ends_s())

    @property
    def name(self) -> str:
        """See `turns.Worker`."""
        return "websocket"

    @property
    def owner(self) -> "WebSocketFrames":
        """See `turns.Worker`."""
        return self

    def cut(self, reason: str) -> None:  # noqa: ARG002  logged by the caller
        """See `turns.Payer`."""
        self.transport.abort()

    def work(self) -> bool:
        """Parse the next piece. See `turns.Worker`."""
        self._take(self._pieces.take_all(), 0.0, waited=True)
        return False  # `_take` has added this connection again if work is left

    def _take(self, block: memoryview, until: float, *, waited: bool = False) -> None:
        self._pieces.feed(block, until, self._parse, at_once=waited)
        if self.transport.is_closing():
            self._pieces.clear()
        elif self._pieces.waiting:
            self._pause()
            self._shared.turns.add(self)
        elif waited and not self.read_paused:
            self.transport.resume_reading()

    async def receive(self) -> ASGIReceiveEvent:
        message = await super().receive()
        # uvicorn reads on when its queue is empty. A client that sends tiny frames would otherwise send much
        # more than is parsed in a turn, and all of it would wait in memory.
        if self._pieces.waiting:
            self._pause()
        return message

    def _pause(self) -> None:
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def _parse(self, piece: memoryview) -> bool:
        self._parsed = 0
        super().data_received(bytes(piece))
        self._pieces.learn(len(piece), self._parsed)
        return not self.transport.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._pieces.clear()
        super().connection_lost(exc)

    def handle_pong(self, event: Frame) -> None:  # noqa: ARG002  uvicorn passes it
        # The node sends no pings, but a client may send pongs (RFC 6455, 5.5.3).
        self._count_empty()

    def handle_ping(self) -> None:
        self._count_empty()
        if self.transport.get_write_buffer_size() > PONG_BYTES_MAX:
            self.transport.abort()
        # After an abort the pong would wait in the protocol without limit.
        if self.transport.is_closing():
            self.conn.data_to_send()  # dropped
        else:
            super().handle_ping()

    def handle_bytes(self, event: Frame) -> None:
        if event.data:
            self._parsed += 1
            super().handle_bytes(event)
            return
        self._count_empty()
        if not event.fin:
            super().handle_bytes(event)  # the frames that continue this message refer to it

    def handle_text(self, event: Frame) -> None:
        self._parsed += 1
        super().handle_text(event)

    def handle_cont(self, event: Frame) -> None:
        if event.data:
            self._parsed += 1
        else:
            self._count_empty()
        # Not an object for each fragment: those of one byte would take fifty times the size of the message.
        self._rest += event.data
        if event.fin:
            self.frames.append(bytes(self._rest))
            self._rest = bytearray()
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        # The application refuses every text message. uvicorn would decode this one first, and log a traceback
        # if it is not UTF-8.
        if self.curr_msg_data_type == "text":
            self.frames = [b""]
        super().send_receive_event_to_app()

    def _count_empty(self) -> None:
        self._parsed += 1
        now = self.loop.time()
        if now >= self._second_ends:
            self._empty, self._second_ends = 0, now + 1
        self._empty += 1
        if self._empty > EMPTY_FRAMES_MAX:
            self.transport.abort()
