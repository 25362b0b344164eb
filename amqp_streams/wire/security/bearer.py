"""Bearer tokens in SASL: OAUTHBEARER (RFC 7628) and XOAUTH2, which came before it. A token is shown, and whoever has it is its user.

    OAUTHBEARER   n,a=USER,^Ahost=HOST^Aport=PORT^Aauth=Bearer TOKEN^A^A      ^A is the byte 1
    XOAUTH2       user=USER^Aauth=Bearer TOKEN^A^A

In OAUTHBEARER a bad token is answered with a challenge in JSON that says so (RFC 7628, 3.2.2); the client says ^A, and then fails.
In XOAUTH2 the attempt fails at once: not every client of it knows what to do with a challenge.
"""

import json
import re
from typing import Final

from amqp_streams.wire.security.mechanisms import Answer, Challenge, Failure, Step, Success, VerifyToken
from amqp_streams.wire.security.saslprep import NAME_CHARACTERS_MAX, prepared_name

OAUTHBEARER: Final = "OAUTHBEARER"
XOAUTH2: Final = "XOAUTH2"
TOKEN_CHARACTERS_MAX: Final = 12 << 10

# RFC 6750, section 2.1
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_AUTH: Final = re.compile(r"bearer +(?P<token>[^ ]+)", re.IGNORECASE)


def is_token(text: str) -> bool:
    """Whether this can be a bearer token at all."""
    return len(text) <= TOKEN_CHARACTERS_MAX and _TOKEN.fullmatch(text) is not None


def oauthbearer_message(token: str, user: str = "", *, host: str | None = None) -> bytes:
    """What the client says. Without `user` the token alone tells who it is."""
    name = user.replace("=", "=3D").replace(",", "=2C")
    header = f"n,a={name}," if user else "n,,"
    place = f"host={host}\1" if host else ""
    return f"{header}\1{place}auth=Bearer {token}\1\1".encode()


def xoauth2_message(token: str, user: str = "") -> bytes:
    """What the client says."""
    return f"user={user}\1auth=Bearer {token}\1\1".encode()


class BearerServer:
    """One attempt of one peer (`mechanisms.Mechanism`), in either mechanism. `discovery`: URL of the issuer's metadata."""

    def __init__(self, mechanism: str, *, discovery: str | None = None) -> None:
        assert mechanism in {OAUTHBEARER, XOAUTH2}
        self.claimed: str | None = None
        self._mechanism: Final = mechanism
        self._discovery: Final = discovery
        self._failure: Failure | None = None

    def start(self, initial: bytes | None) -> Step:
        """The message, or an empty challenge that asks for it."""
        return Challenge(b"") if initial is None else self.respond(initial)

    def respond(self, data: bytes) -> Step:
        """The message; or what the client says to the challenge that told it of its failure: it does not matter what."""
        if self._failure is not None:
            return self._failure
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return Failure("not UTF-8")
        return self._read_oauthbearer(text) if self._mechanism == OAUTHBEARER else self._read_xoauth2(text)

    def answered(self, answer: Answer) -> Step:
        """Whose token it is."""
        if isinstance(answer, Success) and self.claimed and prepared_name(self.claimed) != prepared_name(answer.user or ""):
            answer = Failure(f"the token is another's: {(answer.user or '')[:64]!r}")
        assert isinstance(answer, Success | Failure)
        return self._fail(answer) if isinstance(answer, Failure) else answer

    def _read_oauthbearer(self, text: str) -> Step:
        header, _, rest = text.partition("\1")
        found = re.fullmatch(r"(?P<flag>[ny]|p=[^,]*),(?:a=(?P<user>[^,]*))?,", header)
        if found is None:
            return Failure("no GS2 header")
        if found["flag"].startswith("p"):
            return Failure("the client wants channel binding, which is not offered")
        return self._read_from(found["user"].replace("=2C", ",").replace("=3D", "=") if found["user"] else "", rest)

    def _read_xoauth2(self, text: str) -> Step:
        user, _, rest = text.partition("\1")
        if not user.startswith("user="):
            return Failure("no user=")
        return self._read_from(user.removeprefix("user="), rest)

    def _read_from(self, user: str, pairs: str) -> Step:
        if len(user) > NAME_CHARACTERS_MAX:
            return self._fail(Failure(f"a name of more than {NAME_CHARACTERS_MAX} characters"), "invalid_request")
        self.claimed = user or None
        return self._read_pairs(pairs)

    def _read_pairs(self, text: str) -> Step:
        """Pairs, each with ^A behind it, and one more ^A. Those that we do not know are not looked at."""
        if not text.endswith("\1"):
            return Failure("a message without its end")
        pairs = dict(pair.partition("=")[::2] for pair in text.rstrip("\1").split("\1"))
        found = _AUTH.fullmatch(pairs.get("auth", ""))
        if found is None:
            return self._fail(Failure("no bearer token"), "invalid_request")
        if not is_token(found["token"]):
            return self._fail(Failure("a token that can be none"))
        return VerifyToken(found["token"], self.claimed)

    def _fail(self, failure: Failure, status: str = "invalid_token") -> Step:
        if self._mechanism == XOAUTH2:
            return failure
        self._failure = failure
        told = {"status": status} | ({"openid-configuration": self._discovery} if self._discovery else {})
        return Challenge(json.dumps(told).encode())
