"""The server's side of AMQP's SASL security layer, without I/O (AMQP 1.0 section 5.3).

    peer                                   server
    AMQP 3 1 0 0                     ->    AMQP 3 1 0 0, mechanisms
    init (mechanism, initial, host)  ->    [challenge  <->  response …]  outcome
    further bytes are plain AMQP: returned as `leftover`

Law: the events do not depend on how the bytes are divided into blocks. The shell feeds received bytes and
performs the events in order. The last event is `Authenticated`, `NoSasl` or `Failed`. A question of a
mechanism (`mechanisms.Question`) is also an event: the shell calls `answer` with the result.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, assert_never

from amqp_streams.errors import WireError
from amqp_streams.wire.decoder import decode
from amqp_streams.wire.encoder import encode, encode_list
from amqp_streams.wire.frames import SASL, frame, read_frame
from amqp_streams.wire.security.mechanisms import (
    Answer,
    Challenge,
    Failure,
    FindKeys,
    Mechanism,
    Question,
    Step,
    Success,
    VerifyPlain,
    VerifyToken,
)
from amqp_streams.wire.types import Array, Described, Symbol, UByte, ULong, Value

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"

FRAME_MAX: Final = 16 << 10
"""The largest SASL frame; the standard allows 512 bytes, but tokens with groups have several thousand."""
ROUNDS_MAX: Final = 8
"""The most challenges of an attempt; SCRAM needs two."""
PIPELINED_MAX: Final = 64 << 10
"""The most bytes that a peer may send before the outcome."""

_MECHANISMS: Final = 0x40
_INIT: Final = 0x41
_CHALLENGE: Final = 0x42
_RESPONSE: Final = 0x43
_OUTCOME: Final = 0x44


class Outcome(IntEnum):
    """The codes of a SASL outcome. Spec: AMQP 1.0, 5.3.3.6."""

    OK = 0
    AUTH = 1
    SYS = 2
    SYS_PERM = 3
    SYS_TEMP = 4


# -- events: what the shell does


@dataclass(frozen=True, slots=True)
class Send:
    """Write these bytes to the peer."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The peer is `user` (None: anonymous). `leftover`: the bytes after the layer, from the AMQP header on.

    `groups` and `expires_ms`: see `mechanisms.Success`.
    """

    user: str | None
    mechanism: str
    hostname: str | None
    leftover: bytes
    groups: frozenset[str] = frozenset()
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class NoSasl:
    """The peer began with plain AMQP; `leftover` has all received bytes, header included."""

    leftover: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """The login failed: close the connection. `reason` goes into the log and not to the peer.

    `mechanism` and `user`: what the peer sent; None: it sent none. `guess`: the credentials were wrong.
    """

    reason: str
    mechanism: str | None = None
    user: str | None = None
    guess: bool = False


Event = Send | Question | Authenticated | NoSasl | Failed


class _State(Enum):
    HEADER = "header"
    INIT = "init"
    RESPONSE = "response"
    ASKING = "asking"
    DONE = "done"


class SaslServer:
    """The SASL layer of one connection.

    `mechanisms`: by name, the strongest first: some clients take the first.
    """

    def __init__(self, mechanisms: Mapping[str, Callable[[], Mechanism]]) -> None:
        assert mechanisms
        self._mechanisms: Final = dict(mechanisms)
        self._buffer = b""
        self._state = _State.HEADER
        self._mechanism: tuple[str, Mechanism] | None = None
        self._hostname: str | None = None
        self._rounds = 0

    @property
    def done(self) -> bool:
        """Whether the last event was returned; no more bytes are accepted."""
        return self._state is _State.DONE

    @property
    def mechanism(self) -> str | None:
        """The mechanism that the peer chose; None before."""
        return None if self._mechanism is None else self._mechanism[0]

    @property
    def claimed(self) -> str | None:
        """The user that the peer claims to be, once it is known."""
        return None if self._mechanism is None else self._mechanism[1].claimed

    def feed(self, data: bytes) -> list[Event]:
        """Handle bytes from the peer; not after the last event. Never raises for their content."""
        assert not self.done, "fed after the last event"
        self._buffer += data
        events: list[Event] = []
        # While a question is open, further bytes only wait: their meaning depends on the answer.
        while self._state not in {_State.DONE, _State.ASKING}:
            more = self._header() if self._state is _State.HEADER else self._frame()
            if not more:
                return events
            events += more
        # The peer is not authenticated yet, so what it may store here is bounded.
        if self._state is _State.ASKING and len(self._buffer) > PIPELINED_MAX:
            events += self._fail(f"the peer sent more than {PIPELINED_MAX} bytes before the outcome")
        return events

    def answer(self, answer: Answer) -> list[Event]:
        """Answer a question, unless `done`. Bytes that arrived meanwhile are handled at the next `feed`."""
        assert self._state is _State.ASKING, self._state
        assert self._mechanism is not None
        events = self._step(self._mechanism[1].answered(answer))
        # The peer may have sent the next frame while the question was open.
        return events if self.done else events + self.feed(b"")

    def unavailable(self, reason: str) -> list[Event]:
        """End the login: the identity cannot be checked now, and the peer may retry.

        Called instead of `answer` or `feed`, unless `done`.
        """
        assert self._state is not _State.DONE, self._state
        return [_outcome(Outcome.SYS_TEMP), *self._fail(reason)]

    def _header(self) -> list[Event]:
        if len(self._buffer) < len(SASL_HEADER):
            return []
        # The peer wants no security layer. Whether it may is the shell's decision.
        if self._buffer.startswith(AMQP_HEADER):
            self._state = _State.DONE
            return [NoSasl(self._take_all())]
        if not self._buffer.startswith(SASL_HEADER):
            shown = self._buffer[: len(SASL_HEADER)].hex(" ")
            # The server says what it speaks before it closes (AMQP 2.2).
            return [Send(SASL_HEADER), *self._fail(f"not an AMQP protocol header: {shown}")]
        self._buffer = self._buffer[len(SASL_HEADER) :]
        self._state = _State.INIT
        names = Array(Symbol, tuple(Symbol(name) for name in self._mechanisms))
        return [Send(SASL_HEADER), _send(_MECHANISMS, names)]

    def _frame(self) -> list[Event]:
        try:
            found = read_frame(self._buffer, size_max=FRAME_MAX)
            if found is None:
                return []
            received, end = found
            self._buffer = self._buffer[end:]
            # An AMQP frame before the outcome would bypass the login.
            if received.type != SASL:
                return self._fail("the frame is not a SASL frame")
            code, fields = _read(received.body)
            if self._state is _State.INIT and code == _INIT:
                return self._init(fields)
            if self._state is _State.RESPONSE and code == _RESPONSE:
                return self._response(fields)
        except WireError as error:
            return self._fail(str(error))
        return self._fail(f"unexpected SASL frame {code:#x}")

    def _init(self, fields: list[Value]) -> list[Event]:
        name, initial, hostname = [*fields, None, None, None][:3]
        if isinstance(initial, str):  # the standard requires binary; some clients send a string
            initial = initial.encode()
        if (
            not isinstance(name, str)
            or not isinstance(initial, bytes | None)
            or not isinstance(hostname, str | None)
        ):
            return self._fail("the SASL init has fields of wrong types")
        # The peer may name any mechanism: only those offered on this connection are used.
        factory = self._mechanisms.get(name)
        if factory is None:
            return [_outcome(Outcome.AUTH), *self._fail(f"mechanism {name[:40]!r} is not offered")]
        self._hostname = hostname
        self._mechanism = (str(name), factory())
        return self._step(self._mechanism[1].start(initial))

    def _response(self, fields: list[Value]) -> list[Event]:
        data = fields[0] if fields else None
        if not isinstance(data, bytes):
            return self._fail("the SASL response has no data")
        self._rounds += 1
        # A mechanism that never ends would hold an unauthenticated connection open.
        if self._rounds > ROUNDS_MAX:
            return [_outcome(Outcome.AUTH), *self._fail(f"the login needs more than {ROUNDS_MAX} challenges")]
        assert self._mechanism is not None
        return self._step(self._mechanism[1].respond(data))

    def _step(self, step: Step) -> list[Event]:
        assert self._mechanism is not None
        match step:
            case Challenge(data):
                self._state = _State.RESPONSE
                return [_send(_CHALLENGE, data)]
            case VerifyPlain() | FindKeys() | VerifyToken():
                self._state = _State.ASKING
                return [step]
            case Success(user, data, groups, expires_ms):
                self._state = _State.DONE
                done = Authenticated(
                    user, self._mechanism[0], self._hostname, self._take_all(), groups, expires_ms
                )
                return [_outcome(Outcome.OK, data), done]
            case Failure(reason):
                return [_outcome(Outcome.AUTH), *self._fail(reason, guess=True)]
            case _:
                assert_never(step)

    def _fail(self, reason: str, *, guess: bool = False) -> list[Event]:
        self._state = _State.DONE
        self._buffer = b""
        return [Failed(reason, self.mechanism, self.claimed, guess)]

    def _take_all(self) -> bytes:
        taken, self._buffer = self._buffer, b""
        return taken


def _read(body: bytes) -> tuple[int, list[Value]]:
    described, end = decode(body)
    if end != len(body) or not isinstance(described, Described) or not isinstance(described.value, list):
        message = "the SASL frame is not a described list"
        raise WireError(message)
    code = described.descriptor
    if not isinstance(code, ULong):
        message = f"unknown SASL frame: descriptor {code!r}"
        raise WireError(message)
    return int(code), described.value


def _send(code: int, *fields: object) -> Send:
    return Send(frame(0, b"\x00" + encode(ULong(code)) + encode_list(fields), type=SASL))


def _outcome(code: Outcome, data: bytes | None = None) -> Send:
    return _send(_OUTCOME, UByte(code), data)
