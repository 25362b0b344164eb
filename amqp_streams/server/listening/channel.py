"""The seam between a byte stream to a peer (TCP, TLS, WebSocket) and the AMQP connection that lives on it.

One thread, the event loop's, calls both sides.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

# `drained` follows every time `pending` was above the first, once it is at or below the second. Who stops
# writing at more may rely on it.
DRAINED_WHEN_ABOVE: Final = 64 << 10
DRAINED_BELOW: Final = 16 << 10


class ByteChannel(Protocol):
    """One established, ordered byte stream to one peer."""

    @property
    def peer(self) -> str:
        """The address of the peer, for people: `127.0.0.1:40112`, `[::1]:40112`."""

    @property
    def loopback(self) -> bool:
        """The peer is on this machine."""

    @property
    def secure(self) -> bool:
        """TLS protects it."""

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The peer's verified certificate, as `ssl.SSLSocket.getpeercert` returns it. None or empty: no
        certificate.
        """

    def write(self, data: bytes) -> None:
        """Send, and buffer what the system does not accept at once. Ignored after close or abort."""

    def pending(self) -> int:
        """Bytes written here that the system has not accepted yet."""

    def pause_reading(self) -> None:
        """Stop calling `received`, so that the peer gets backpressure. May be called twice."""

    def resume_reading(self) -> None:
        """Undo `pause_reading`. May be called twice."""

    def close(self) -> None:
        """Send what is buffered, then close; `lost` is called when that is done."""

    def abort(self) -> None:
        """Close at once and drop what is buffered; `lost` is called soon after."""


class Connection(Protocol):
    """The consumer of the bytes. Made by a `ConnectionFactory` when the channel is established."""

    def received(self, data: memoryview) -> None:
        """Bytes arrived; the view is valid during this call only. Never raises for what a peer sends."""

    def drained(self) -> None:
        """The channel's buffer has space for more."""

    def lost(self) -> None:
        """The channel has ended (either side closed it, or it broke). Called exactly once, last."""


ConnectionFactory = Callable[[ByteChannel], Connection]
