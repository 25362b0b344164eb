"""The client's side of SASL, bytes in and bytes out (AMQP 1.0 core part 5.3).

One law: no byte of the AMQP layer is taken from the peer before its outcome says ok. Proton's own SASL is not used: its published build has
no SCRAM and asks for Cyrus for PLAIN.
"""

from dataclasses import dataclass, field
from typing import Final

from amqp_streams.client.errors import AuthenticationError, ConnectError
from amqp_streams.errors import WireError
from amqp_streams.wire.codec import Described, Symbol, ULong, decode, encode

HEADER: Final = b"AMQP\x03\x01\x00\x00"
_MECHANISMS: Final = 0x40
_INIT: Final = 0x41
_CHALLENGE: Final = 0x42
_OUTCOME: Final = 0x44
_FRAME_BYTES_MAX: Final = 64 << 10
_OUTCOMES: Final = {1: "wrong user name or password", 2: "system error", 3: "permanent system error", 4: "try again later"}


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we are. Without a user: EXTERNAL when `external` (a client certificate is shown), else ANONYMOUS."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    external: bool = False

    def mechanisms(self) -> tuple[str, ...]:
        """What may be used, best first."""
        if self.user is not None:
            return ("PLAIN",)
        return ("EXTERNAL", "ANONYMOUS") if self.external else ("ANONYMOUS",)

    def initial_response(self, mechanism: str) -> bytes:
        """The first message of `mechanism` (RFC 4616, 4505, 4422)."""
        if mechanism == "PLAIN":
            return b"\0" + (self.user or "").encode() + b"\0" + (self.password or "").encode()
        return b"anonymous" if mechanism == "ANONYMOUS" else b""


class SaslClient:
    """One exchange: feed what comes, send `take_output`, until `done`; then `rest` is the AMQP layer's."""

    def __init__(self, credentials: Credentials, hostname: str | None) -> None:
        self._credentials = credentials
        self._hostname = hostname
        self._input = bytearray()
        self._output = bytearray(HEADER)
        self._header_seen = False
        self.done = False

    @property
    def rest(self) -> bytes:
        """Bytes that came after the outcome."""
        return bytes(self._input)

    def take_output(self) -> bytes:
        """Bytes to send now."""
        output = bytes(self._output)
        self._output.clear()
        return output

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the peer.

        Raises:
            AuthenticationError: refused, or no mechanism in common.
            ConnectError: the peer speaks something else.
        """
        self._input += data
        if not self._header_seen:
            if len(self._input) < len(HEADER) and HEADER.startswith(bytes(self._input)):
                return
            if not self._input.startswith(HEADER):
                message = f"the peer does not speak AMQP 1.0 with SASL: it answered {bytes(self._input[:8])!r}"
                raise ConnectError(message)
            del self._input[: len(HEADER)]
            self._header_seen = True
        while not self.done and (frame := self._next_frame()) is not None:
            self._take_frame(frame)

    def _next_frame(self) -> bytes | None:
        if len(self._input) < 8:
            return None
        size, body = int.from_bytes(self._input[:4]), self._input[4] * 4
        if not 8 <= body <= size <= _FRAME_BYTES_MAX or self._input[5] != 1:
            message = "the peer sent a broken SASL frame"
            raise ConnectError(message)
        if len(self._input) < size:
            return None
        frame = bytes(self._input[body:size])
        del self._input[:size]
        return frame

    def _take_frame(self, body: bytes) -> None:
        try:
            performative, _ = decode(body)
        except WireError as error:
            message = "the peer sent a broken SASL frame"
            raise ConnectError(message) from error
        if not isinstance(performative, Described) or not isinstance(performative.value, list):
            message = "the peer sent a broken SASL frame"
            raise ConnectError(message)
        code, fields = performative.descriptor, performative.value
        if code == _MECHANISMS:
            self._choose(fields[0] if fields else None)
        elif code == _OUTCOME:
            outcome = fields[0] if fields else None
            if outcome != 0:
                raise AuthenticationError(_OUTCOMES.get(outcome, "refused") if isinstance(outcome, int) else "refused")
            self.done = True
        elif code == _CHALLENGE:
            message = "the peer asks for more than the mechanism has"
            raise AuthenticationError(message)

    def _choose(self, offered: object) -> None:
        names = _symbols(offered)
        mechanism = next((name for name in self._credentials.mechanisms() if name in names), None)
        if mechanism is None:
            who = "a user name and a password were" if self._credentials.user is not None else "no user name was"
            message = f"the peer offers {', '.join(names) or 'no mechanism'}, and {who} given"
            raise AuthenticationError(message)
        init = Described(ULong(_INIT), [Symbol(mechanism), self._credentials.initial_response(mechanism), self._hostname])
        body = encode(init)
        self._output += (len(body) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + body


def _symbols(offered: object) -> list[str]:
    if isinstance(offered, str):
        return [offered]
    items = getattr(offered, "items", offered)
    return [str(item) for item in items] if isinstance(items, list | tuple) else []
