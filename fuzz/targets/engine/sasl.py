"""The security layer of a connection, with every mechanism, in pieces of any size.

A login needs the password, a certificate that a rule maps, or a valid token. The clients here have none of
them, so no login succeeds.
"""

import base64
import hashlib
import hmac
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

from argon2 import PasswordHasher

from amqp_streams.authentication import CertificateName, ExternalRule, OAuthSettings, TlsSettings
from amqp_streams.errors import AmqpStreamsError
from amqp_streams.server.identity.users import UsersFile
from amqp_streams.testing_amqp import InMemoryNode
from amqp_streams.wire.codec import decode
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.frames import frame, read_frames
from amqp_streams.wire.security.mechanisms import ScramAlgorithm
from amqp_streams.wire.security.scram import ScramClient
from amqp_streams.wire.types import Array, Described, Symbol, UByte, ULong, Value
from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from fuzz.targets.engine.dialogue import Speaker
from fuzz.targets.engine.speech import conversation
from fuzz.values import mapping, value
from service_parts.settings.choices import AnonymousAccess
from service_parts.tokens.algorithms import TokenAlgorithm

_HEADER: Final = b"AMQP\x03\x01\x00\x00"
_SASL: Final = 1
_INIT, _RESPONSE = 0x41, 0x43
_MECHANISMS: Final = (
    *3 * ("PLAIN", "ANONYMOUS", "EXTERNAL", "SCRAM-SHA-256", "SCRAM-SHA-512", "XOAUTH2", "OAUTHBEARER"),
    *("SCRAM-SHA-1", "SCRAM-SHA-256-PLUS", "MSSBCBS", "", "plain", "X" * 300),
)
_RESPONSES: Final = (
    b"\x00user\x00wrong", b"user\x00user\x00wrong", b"\x00\x00", b"\x00user", b"", b"n,,n=user,r=nonce",
    b"y,,n=user,r=nonce",
    b"n,a=other,n=user,r=nonce", b"p=tls-unique,,n=user,r=nonce", b"n,,n=us=2Cer,r=nonce",
    b"n,,n=us=er,r=nonce", b"n,,m=x,n=user,r=n",
    b"c=biws,r=nonce,p=AAAA", b"c=biws,r=nonce,p=", b"c=,r=,p=",
    b"n,a=user,\x01host=h\x01auth=Bearer eyJhbGciOiJub25lIn0.e30.\x01\x01",
    b"user=user\x01auth=Bearer x.y.z\x01\x01", b"\x01", b"\xff\xfe\x00\x80", b"n" * 3000,
)  # fmt: skip


_BEARERS: Final = ("OAUTHBEARER", "XOAUTH2")
_CERTIFICATES: Final[tuple[dict[str, Any] | None, ...]] = (
    None,
    {
        "subject": ((("commonName", "other"),),),
        "subjectAltName": (("DNS", "other.example"), ("email", "x@y")),
    },
    {"subject": ((("commonName", "user\nfake"),),)},
    {},
)
_ISSUER, _AUDIENCE = "https://issuer.example", "node"
_SECRET: Final = b"0123456789abcdef0123456789abcdef"


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="fuzz-sasl-"))


@cache
def _users() -> UsersFile:
    users = UsersFile.load(
        _folder() / "users.json",
        hasher=PasswordHasher(time_cost=1, memory_cost=8, parallelism=1),
        scram_iterations=4096,
    )
    users.add("user", "the password")
    return users


@cache
def _settings() -> dict[str, Any]:
    secret = _folder() / "secret"
    secret.write_bytes(_SECRET)
    secret.chmod(0o600)
    return {
        "anonymous": AnonymousAccess.NEVER,
        "tls": TlsSettings(certificate=secret, key=secret, client_ca=secret),
        "external": (ExternalRule(name=CertificateName.CN, pattern="user", user="user"),),
        "oauth": OAuthSettings(
            issuer=_ISSUER, audience=(_AUDIENCE,), secret_file=secret, algorithms=(TokenAlgorithm.HS256,)
        ),
    }


class _Stranger(Speaker):
    """Keeps what it hears."""

    def __init__(self, node: InMemoryNode, certificate: dict[str, Any] | None) -> None:
        self.node = node
        self.heard = bytearray()
        self.lost = False
        self._out = bytearray()
        self.channel = node.connect(self, users=_users(), certificate=certificate)

    def challenge(self) -> bytes:
        """The last challenge."""
        for one in reversed(list(read_frames(bytes(self.heard[8:])))):
            said, _ = decode(one.body)
            if isinstance(said, Described) and said.descriptor == 0x42 and isinstance(said.value, list):
                return bytes(said.value[0])  # type: ignore[arg-type]  # binary by the node's own hand
        return b""


def run(data: bytes) -> str:
    """One login of a client without valid credentials."""
    draw = Draw(data)
    node = InMemoryNode({"events": 1, "single": 1}, **_settings())
    stranger = _Stranger(node, draw.pick(_CERTIFICATES))
    match draw.below(4):
        case 0:
            _scram(draw, stranger)
        case 1:
            stranger.say(_HEADER + _frame(draw, _INIT, [Symbol(draw.pick(_BEARERS)), _token(draw), None]))
        case _:
            pass
    said = b"".join(login(draw))
    while said:
        size = len(said) if draw.chance(2) else 1 + draw.below(40)
        stranger.say(said[:size])
        said = said[size:]
    if b"AMQP\x00\x01\x00\x00" in stranger.heard:
        message = f"somebody was let in: {bytes(stranger.heard)!r}"
        raise WrongError(message)
    node.advance(60_000)
    if not stranger.lost:
        message = "a connection that did not log in is open after a minute"
        raise WrongError(message)
    return f"{len(stranger.heard)} heard"


def _scram(draw: Draw, stranger: _Stranger) -> None:
    """SCRAM as it should be, but for the password, and perhaps for what is changed on the way."""
    algorithm = draw.pick(tuple(ScramAlgorithm))
    client = ScramClient(
        algorithm, draw.pick(("user", "nobody", "us,er=")), "a wrong password", nonce="nonce"
    )
    stranger.say(_HEADER + _frame(draw, _INIT, [Symbol(algorithm), _changed(draw, client.first()), None]))
    try:
        final = client.final(stranger.challenge())
    except AmqpStreamsError:
        return
    stranger.say(_frame(draw, _RESPONSE, [_changed(draw, final)]))
    if draw.chance(2):
        stranger.say(_frame(draw, _RESPONSE, [b""]))


def _token(draw: Draw) -> bytes:
    """A token with something wrong: its signature, its time, its issuer, its audience, or all of it."""
    claims: dict[str, Any] = {"iss": _ISSUER, "aud": _AUDIENCE, "sub": "user", "exp": 1 << 40}
    header: dict[str, Any] = {
        "alg": draw.pick(("HS256", "HS256", "HS256", "HS256", "none", "HS512", "RS256", "", None, 5)),
        "typ": "JWT",
    }
    secret = _SECRET
    match draw.below(6):
        case 0:
            secret = b"another secret of thirty-two byte"
        case 1:
            claims["exp"] = draw.pick((0, -1, "soon", None, 1.5, {}))
        case 2:
            claims["iss"] = draw.pick(("other", None, 5, [_ISSUER]))
        case 3:
            claims["aud"] = draw.pick(("other", None, 5, [], {"node": 1}))
        case 4:
            claims["sub"] = draw.pick((None, 5, "", "a\0b", [], "x" * 5000))
        case _:
            secret = b""
            claims |= {str(key): str(inner) for key, inner in mapping(draw).items()}
    parts = b".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims)
    )
    signature = base64.urlsafe_b64encode(hmac.new(secret, parts, hashlib.sha256).digest()).rstrip(b"=")
    token = _changed(draw, parts) + b"." + signature if draw.chance(4) else parts + b"." + signature
    if draw.chance(2):
        return b"n,a=user,\x01host=h\x01auth=Bearer " + token + b"\x01\x01"
    return b"user=user\x01auth=Bearer " + token + b"\x01\x01"


def _changed(draw: Draw, data: bytes) -> bytes:
    if not draw.chance(4):
        return data
    changed = bytearray(data)
    at = draw.below(len(changed) + 1)
    changed[at : at + draw.below(3)] = draw.raw(6)
    return bytes(changed)


def login(draw: Draw) -> list[bytes]:
    """A log-in by some mechanism, mostly in order, and then perhaps more."""
    blocks = [_HEADER if not draw.chance(8) else draw.raw(10)]
    blocks.append(
        _frame(draw, _INIT, [Symbol(draw.pick(_MECHANISMS)), _response(draw), draw.pick((None, "host", ""))])
    )
    blocks += [
        _frame(draw, draw.pick((_RESPONSE, _RESPONSE, _RESPONSE, _INIT, 0x40, 0x42, 0x44)), [_response(draw)])
        for _ in range(draw.below(5))
    ]
    return blocks + conversation(draw) if draw.chance(3) else blocks


def challenged(draw: Draw) -> list[bytes]:
    """What a node sends to a client that logs in, mostly in order."""
    offered = [Symbol(draw.pick(_MECHANISMS)[:64]) for _ in range(draw.below(4))]
    mechanisms: Value = offered[0] if offered and draw.chance(2) else Array(Symbol, tuple(offered))
    blocks = [_HEADER if not draw.chance(8) else draw.raw(10), _frame(draw, 0x40, [mechanisms])]
    blocks += [_frame(draw, 0x42, [_changed(draw, draw.pick(_CHALLENGES))]) for _ in range(draw.below(4))]
    blocks.append(
        _frame(
            draw, 0x44, [UByte(draw.pick((0, 1, 4, 9))), draw.pick((None, b"v=AAAA", b"e=no", draw.raw(9)))]
        )
    )
    return [*blocks, *conversation(draw)] if draw.chance(3) else blocks


_CHALLENGES: Final = (
    b"r=nonceS,s=QUJD,i=4096", b"r=,s=,i=", b"r=x,s=QUJD,i=1", b"r=x,s=QUJD,i=999999999", b"e=unknown-user",
    b"v=QUJD", b"", b"m=x,r=y",
    b'{"status":"401","schemes":"bearer"}', b"\xff\x00",
)  # fmt: skip


def _response(draw: Draw) -> bytes | None:
    if draw.chance(8):
        return None
    made = bytearray(_token(draw) if draw.chance(4) else draw.pick(_RESPONSES))
    for _ in range(draw.below(3)):
        at = draw.below(len(made) + 1)
        made[at : at + draw.below(3)] = draw.raw(6)
    return bytes(made)


def _frame(draw: Draw, code: int, fields: list[Value]) -> bytes:
    if draw.chance(8):
        fields[draw.below(len(fields))] = value(draw)
    made = frame(
        draw.below(2) if draw.chance(12) else 0,
        encode(Described(ULong(code), fields)),
        type=_SASL if not draw.chance(12) else draw.byte(),
    )
    if draw.chance(12):
        changed = bytearray(made)
        changed[draw.below(len(changed))] = draw.byte()
        return bytes(changed)
    return made


TARGET: Final = Target("sasl", run, seconds_max=1.0)
