"""The client's side of SASL, bytes in and bytes out (AMQP 1.0 core part 5.3).

Law: no byte of the AMQP layer is accepted before the peer's outcome is ok. Proton's own SASL is not used: its
published build has no SCRAM, and needs Cyrus SASL for PLAIN.
"""

from typing import Final, NoReturn

from amqp_streams.client.connection.mechanisms import ClientMechanism, Credentials
from amqp_streams.client.errors import AuthenticationError, ConnectError
from amqp_streams.errors import WireError
from amqp_streams.wire.codec import Described, Symbol, ULong, Value, decode, encode

HEADER: Final = b"AMQP\x03\x01\x00\x00"
_MECHANISMS: Final = 0x40
_INIT: Final = 0x41
_CHALLENGE: Final = 0x42
_RESPONSE: Final = 0x43
_OUTCOME: Final = 0x44
_FRAME_BYTES_MAX: Final = 64 << 10
_ROUNDS_MAX: Final = 8
_REFUSED: Final = 1
_TRY_AGAIN: Final = 4
_OUTCOMES: Final = {2: "system error", 3: "permanent system error"}


class SaslClient:
    """One SASL exchange: pass received bytes to `receive`, send `take_output`, until `done`.

    After that, `rest` contains the bytes of the AMQP layer.
    """

    def __init__(self, credentials: Credentials, hostname: str | None) -> None:
        self._credentials = credentials
        self._hostname = hostname
        self._input = bytearray()
        self._output = bytearray(HEADER)
        self._header_seen = False
        self._mechanism: ClientMechanism | None = None
        self._rounds = 0
        self.done = False

    @property
    def rest(self) -> bytes:
        """Bytes that arrived after the outcome."""
        return bytes(self._input)

    def take_output(self) -> bytes:
        """Return the bytes to send now."""
        output = bytes(self._output)
        self._output.clear()
        return output

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Process bytes from the peer.

        Raises:
            AuthenticationError: the login was refused, or no mechanism is possible.
            ConnectError: the peer does not follow the protocol.
        """
        self._input += data
        if not self._header_seen:
            # Incomplete, and right as far as it goes: a wrong header is reported at once.
            if len(self._input) < len(HEADER) and HEADER.startswith(bytes(self._input)):
                return
            if not self._input.startswith(HEADER):
                raise ConnectError(_unknown_protocol(bytes(self._input)))
            del self._input[: len(HEADER)]
            self._header_seen = True
        while not self.done and (frame := self._next_frame()) is not None:
            self._take_frame(frame)

    def _next_frame(self) -> bytes | None:
        if len(self._input) < 8:
            return None
        size, body = int.from_bytes(self._input[:4]), self._input[4] * 4
        # The peer is not known yet: what it may make us store is bounded.
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
        first = fields[0] if fields else None
        if self._mechanism is None:
            self._choose(first if code == _MECHANISMS else _broken())
        elif code == _OUTCOME:
            self._take_outcome(self._mechanism, first, fields[1] if len(fields) > 1 else None)
        # A peer must not keep the client in an endless login.
        elif code == _CHALLENGE and isinstance(first, bytes) and self._rounds < _ROUNDS_MAX:
            self._rounds += 1
            self._send(_RESPONSE, self._mechanism.respond(first))
        else:
            _broken()

    def _take_outcome(self, mechanism: ClientMechanism, outcome: object, data: object) -> None:
        # Another error than a refused login: the connector tries again.
        if outcome == _TRY_AGAIN:
            message = "the peer cannot check logins at the moment: try again later"
            raise ConnectError(message)
        if outcome != 0:
            words = (
                mechanism.refusal
                if outcome == _REFUSED
                else _OUTCOMES.get(outcome, "refused")
                if isinstance(outcome, int)
                else "refused"
            )
            raise AuthenticationError(words)
        # Before `done`: with SCRAM, the peer must prove that it knows the password too.
        mechanism.finish(data if isinstance(data, bytes) else None)
        self.done = True

    def _choose(self, offered: object) -> None:
        name, self._mechanism = self._credentials.choose(_symbols(offered), self._hostname)
        self._send(_INIT, Symbol(name), self._mechanism.initial(), self._hostname)

    def _send(self, code: int, *fields: Value) -> None:
        body = encode(Described(ULong(code), list(fields)))
        self._output += (len(body) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + body


def _unknown_protocol(answer: bytes) -> str:
    """Return what a peer is whose first bytes are not those of AMQP."""
    if answer.startswith(b"HTTP/"):
        return "the server there speaks HTTP, not AMQP"
    # An alert: the server could not read our header as a TLS handshake.
    if answer.startswith(b"\x15\x03"):
        return "the server there speaks TLS: the scheme is amqps:// or wss://"
    return f"the server there does not speak AMQP 1.0: it answered {answer[:8]!r}"


def _broken() -> NoReturn:
    message = "the peer sent a SASL frame that was not expected"
    raise ConnectError(message)


def _symbols(offered: object) -> list[str]:
    if isinstance(offered, str):
        return [offered]
    # One symbol, an array of symbols, or a list of them.
    items = getattr(offered, "items", offered)
    return [str(item) for item in items] if isinstance(items, list | tuple) else []
