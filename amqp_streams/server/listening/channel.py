"""The interface between a byte stream to a client (TCP, TLS, WebSocket) and the AMQP connection that uses it.

Both sides are called on the event loop's thread only.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

# `drained` is called when `pending` has fallen to the second number, if it was above the first. Writers that
# stop at a higher number may rely on this.
DRAINED_WHEN_ABOVE: Final = 64 << 10
DRAINED_BELOW: Final = 16 << 10


class ByteChannel(Protocol):
    """One established, ordered byte stream to one peer."""

    @property
    def peer(self) -> str:
        """The address of the client as text: `127.0.0.1:40112`, `[::1]:40112`."""

    @property
    def protocol(self) -> str:
        """What carries AMQP: `amqp` (TCP) or `websocket`."""

    @property
    def loopback(self) -> bool:
        """Whether the client is a program on this machine."""

    @property
    def foreign(self) -> bool:
        """Whether a web page of another host made a browser connect."""

    @property
    def secure(self) -> bool:
        """Whether TLS protects the bytes."""

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The client's verified certificate, as `ssl.SSLSocket.getpeercert` returns it.

        None or empty: no certificate.
        """

    def write(self, data: bytes) -> None:
        """Send, and buffer what the system does not accept at once. Ignored after close or abort."""

    def pending(self) -> int:
        """How many written bytes the operating system has not accepted yet."""

    def pause_reading(self) -> None:
        """Stop calling `received`, so that the client gets backpressure. May be called twice."""

    def resume_reading(self) -> None:
        """Undo `pause_reading`. May be called twice."""

    def close(self) -> None:
        """Send what is buffered, then close. `lost` is called afterwards."""

    def abort(self) -> None:
        """Close at once and drop what is buffered. `lost` is called soon after."""


class Connection(Protocol):
    """The consumer of the bytes. A `ConnectionFactory` creates it when the channel is established."""

    def received(self, data: memoryview) -> None:
        """Process received bytes.

        The view is valid during this call only. Never raises because of what a client sends.
        """

    def drained(self) -> None:
        """Continue writing: the channel's buffer has space."""

    def lost(self) -> None:
        """End: the channel was closed by either side, or broke. Called exactly once, as the last call."""


ConnectionFactory = Callable[[ByteChannel], Connection]
