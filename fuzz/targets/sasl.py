"""The security layer of a connection, whatever mechanisms it offers, in pieces of any size. Nobody gets in who is not let in."""

from typing import Final

from amqp_streams.config import AnonymousAccess
from amqp_streams.testing_amqp import InMemoryNode
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.frames import frame
from amqp_streams.wire.types import Described, Symbol, ULong, Value
from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from fuzz.targets.dialogue import Speaker
from fuzz.targets.speech import conversation
from fuzz.values import value

_HEADER: Final = b"AMQP\x03\x01\x00\x00"
_SASL: Final = 1
_INIT, _RESPONSE = 0x41, 0x43
_MECHANISMS: Final = (
    "PLAIN", "ANONYMOUS", "EXTERNAL", "SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-SHA-256-PLUS", "XOAUTH2", "OAUTHBEARER",
    "MSSBCBS", "", "plain", "X" * 300,
)  # fmt: skip
_RESPONSES: Final = (
    b"\x00user\x00wrong", b"user\x00user\x00wrong", b"\x00\x00", b"\x00user", b"", b"n,,n=user,r=nonce", b"y,,n=user,r=nonce",
    b"n,a=other,n=user,r=nonce", b"p=tls-unique,,n=user,r=nonce", b"n,,n=us=2Cer,r=nonce", b"n,,n=us=er,r=nonce", b"n,,m=x,n=user,r=n",
    b"c=biws,r=nonce,p=AAAA", b"c=biws,r=nonce,p=", b"c=,r=,p=", b"n,a=user,\x01host=h\x01auth=Bearer eyJhbGciOiJub25lIn0.e30.\x01\x01",
    b"user=user\x01auth=Bearer x.y.z\x01\x01", b"\x01", b"\xff\xfe\x00\x80", b"n" * 3000,
)  # fmt: skip


class _Nobody:
    """No password is right."""

    def verify(self, _name: str, _password: str) -> bool:
        return False


def run(data: bytes) -> str:
    """One log-in of somebody who has no password."""
    draw = Draw(data)
    node = InMemoryNode({"events": 1, "single": 1}, anonymous=AnonymousAccess.NEVER)
    speaker = Speaker.__new__(Speaker)
    speaker.node, speaker.got, speaker.lost, speaker._out = node, 0, False, bytearray()
    heard = bytearray()
    speaker.input = heard.extend  # type: ignore[method-assign]  # what came back is looked at here
    speaker.channel = node.connect(speaker, users=_Nobody())
    said = b"".join(login(draw))
    while said:
        size = len(said) if draw.chance(2) else 1 + draw.below(40)
        speaker.say(said[:size])
        said = said[size:]
    if b"AMQP\x00\x01\x00\x00" in heard:
        message = f"somebody without a password was let in: {bytes(heard)!r}"
        raise WrongError(message)
    node.advance(60_000)
    if not speaker.lost:
        message = "a connection that did not log in is open after a minute"
        raise WrongError(message)
    return f"{len(heard)} heard, {bytes(heard[8:12]).hex()}"


def login(draw: Draw) -> list[bytes]:
    """A log-in by some mechanism, mostly in order, and then perhaps more."""
    blocks = [_HEADER if not draw.chance(8) else draw.raw(10)]
    blocks.append(_frame(draw, _INIT, [Symbol(draw.pick(_MECHANISMS)), _response(draw), draw.pick((None, "host", ""))]))
    blocks += [
        _frame(draw, draw.pick((_RESPONSE, _RESPONSE, _RESPONSE, _INIT, 0x40, 0x42, 0x44)), [_response(draw)]) for _ in range(draw.below(5))
    ]
    return blocks + conversation(draw) if draw.chance(3) else blocks


def _response(draw: Draw) -> bytes | None:
    if draw.chance(8):
        return None
    made = bytearray(draw.pick(_RESPONSES))
    for _ in range(draw.below(3)):
        at = draw.below(len(made) + 1)
        made[at : at + draw.below(3)] = draw.raw(6)
    return bytes(made)


def _frame(draw: Draw, code: int, fields: list[Value]) -> bytes:
    if draw.chance(8):
        fields[draw.below(len(fields))] = value(draw)
    made = frame(
        draw.below(2) if draw.chance(12) else 0, encode(Described(ULong(code), fields)), type=_SASL if not draw.chance(12) else draw.byte()
    )
    if draw.chance(12):
        changed = bytearray(made)
        changed[draw.below(len(changed))] = draw.byte()
        return bytes(changed)
    return made


TARGET: Final = Target("sasl", run, seconds_max=1.0)
