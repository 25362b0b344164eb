"""Bearer tokens in SASL: OAUTHBEARER (RFC 7628) and its predecessor XOAUTH2. The token identifies the user.

    OAUTHBEARER   n,a=USER,^Ahost=HOST^Aport=PORT^Aauth=Bearer TOKEN^A^A      ^A is the byte 1
    XOAUTH2       user=USER^Aauth=Bearer TOKEN^A^A

OAUTHBEARER answers a bad token with a challenge in JSON (RFC 7628, 3.2.2); the client answers ^A, and the
login fails. XOAUTH2 fails at once: some of its clients cannot handle a challenge.
"""

import json
import re
from typing import Final

from amqp_streams.wire.security.mechanisms import Answer, Challenge, Failure, Step, Success, VerifyToken
from amqp_streams.wire.security.saslprep import NAME_CHARACTERS_MAX, prepared_name

OAUTHBEARER: Final = "OAUTHBEARER"
XOAUTH2: Final = "XOAUTH2"
TOKEN_CHARACTERS_MAX: Final = 12 << 10
"""The most characters of a token: it must fit in one SASL frame (`sasl.FRAME_MAX`) with the rest of the
message.
"""

# RFC 6750, section 2.1
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_AUTH: Final = re.compile(r"bearer +(?P<token>[^ ]+)", re.IGNORECASE)


def is_token(text: str) -> bool:
    """Whether the text has the form of a bearer token."""
    return len(text) <= TOKEN_CHARACTERS_MAX and _TOKEN.fullmatch(text) is not None


def oauthbearer_message(token: str, user: str = "", *, host: str | None = None) -> bytes:
    """Return the client's message. Without `user`, the token alone identifies the user."""
    name = user.replace("=", "=3D").replace(",", "=2C")
    header = f"n,a={name}," if user else "n,,"
    host_text = f"host={host}\1" if host else ""
    return f"{header}\1{host_text}auth=Bearer {token}\1\1".encode()


def xoauth2_message(token: str, user: str = "") -> bytes:
    """Return the client's message."""
    return f"user={user}\1auth=Bearer {token}\1\1".encode()


class BearerServer:
    """One login attempt (`mechanisms.Mechanism`) with either mechanism.

    `discovery`: URL of the issuer's metadata.
    """

    def __init__(self, mechanism: str, *, discovery: str | None = None) -> None:
        assert mechanism in {OAUTHBEARER, XOAUTH2}
        self.claimed: str | None = None
        self._mechanism: Final = mechanism
        self._discovery: Final = discovery
        self._failure: Failure | None = None

    def start(self, initial: bytes | None) -> Step:
        """Handle the initial response. Without one, return an empty challenge, which asks for the message."""
        return Challenge(b"") if initial is None else self.respond(initial)

    def respond(self, data: bytes) -> Step:
        """Handle the client's message, or its answer to the challenge that reports a failure.

        The content of that answer is ignored.
        """
        if self._failure is not None:
            return self._failure
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return Failure("the message is not UTF-8")
        return self._read_oauthbearer(text) if self._mechanism == OAUTHBEARER else self._read_xoauth2(text)

    def answered(self, answer: Answer) -> Step:
        """Handle the result of checking the token."""
        # A valid token of another user: the peer must not be logged in under the name that it claimed.
        if (
            isinstance(answer, Success)
            and self.claimed
            and prepared_name(self.claimed) != prepared_name(answer.user or "")
        ):
            answer = Failure(f"the token belongs to another user, {(answer.user or '')[:64]!r}")
        assert isinstance(answer, Success | Failure)
        return self._fail(answer) if isinstance(answer, Failure) else answer

    def _read_oauthbearer(self, text: str) -> Step:
        header, _, rest = text.partition("\1")
        found = re.fullmatch(r"(?P<flag>[ny]|p=[^,]*),(?:a=(?P<user>[^,]*))?,", header)
        if found is None:
            return Failure("the message has no GS2 header")
        if found["flag"].startswith("p"):
            return Failure("the client requires channel binding, which is not offered")
        return self._read_from(
            found["user"].replace("=2C", ",").replace("=3D", "=") if found["user"] else "", rest
        )

    def _read_xoauth2(self, text: str) -> Step:
        user, _, rest = text.partition("\1")
        if not user.startswith("user="):
            return Failure("the message has no 'user='")
        return self._read_from(user.removeprefix("user="), rest)

    def _read_from(self, user: str, pairs: str) -> Step:
        # Before the name is prepared or logged: the peer is not authenticated yet.
        if len(user) > NAME_CHARACTERS_MAX:
            return self._fail(
                Failure(f"the user name has more than {NAME_CHARACTERS_MAX} characters"), "invalid_request"
            )
        self.claimed = user or None
        return self._read_pairs(pairs)

    def _read_pairs(self, text: str) -> Step:
        """Key-value pairs, each followed by ^A, and a final ^A. Unknown keys are ignored."""
        if not text.endswith("\1"):
            return Failure("the message does not end with ^A")
        pairs = dict(pair.partition("=")[::2] for pair in text.rstrip("\1").split("\1"))
        found = _AUTH.fullmatch(pairs.get("auth", ""))
        if found is None:
            return self._fail(Failure("the message has no bearer token"), "invalid_request")
        if not is_token(found["token"]):
            return self._fail(Failure("the bearer token is not valid"))
        return VerifyToken(found["token"], self.claimed)

    def _fail(self, failure: Failure, status: str = "invalid_token") -> Step:
        if self._mechanism == XOAUTH2:
            return failure
        # The failure follows the peer's answer to the challenge (RFC 7628, 3.2.3).
        self._failure = failure
        report = {"status": status} | ({"openid-configuration": self._discovery} if self._discovery else {})
        return Challenge(json.dumps(report).encode())
