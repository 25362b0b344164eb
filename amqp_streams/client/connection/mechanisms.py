"""The client's side of the SASL mechanisms: which one to use, and its messages. No I/O.

Law: a secret that the peer could use itself (a password in PLAIN, a token) is sent only on a `private`
connection. If the peer offers SCRAM, the client proves the password instead of sending it.
"""

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from amqp_streams.client.errors import AuthenticationError
from amqp_streams.wire.security.bearer import OAUTHBEARER, XOAUTH2, oauthbearer_message, xoauth2_message
from amqp_streams.wire.security.mechanisms import ScramAlgorithm
from amqp_streams.wire.security.scram import ScramClient, ScramError

_NONCE_BYTES: Final = 18
_SHOWS_SECRETS: Final = frozenset({"PLAIN", OAUTHBEARER, XOAUTH2})
_WORDS_MAX: Final = 100


def _nonce() -> str:
    return secrets.token_urlsafe(_NONCE_BYTES)


class ClientMechanism(Protocol):
    """One login attempt."""

    @property
    def refusal(self) -> str:
        """The message for a login that the peer refuses."""

    def initial(self) -> bytes:
        """Return the first message."""

    def respond(self, challenge: bytes) -> bytes:
        """Return the answer to a challenge. Raises AuthenticationError."""

    def finish(self, data: bytes | None) -> None:
        """Process the data with which the peer accepts the login.

        Raises:
            AuthenticationError: the peer has not proved its identity.
        """


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a client.

    Without user and token: EXTERNAL if `external` (a client certificate is sent), else ANONYMOUS.

    `private`: secrets may be sent, because the connection has TLS or stays on this machine. `only`: the
    mechanisms that may be used, best first; None: all.
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    external: bool = False
    token: str | None = field(default=None, repr=False)
    private: bool = True
    only: tuple[str, ...] | None = None
    nonce: Callable[[], str] = field(default=_nonce, repr=False)

    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms for which the credentials suffice, best first.

        The connection may not permit each of them.
        """
        if self.token is not None:
            able: tuple[str, ...] = (OAUTHBEARER, XOAUTH2)
        elif self.user is not None:
            # The certificate proves the identity; the user is the name that it should act as.
            able = (
                ("EXTERNAL",)
                if self.external and self.password is None
                else (*reversed(ScramAlgorithm), "PLAIN")
            )
        else:
            able = ("EXTERNAL", "ANONYMOUS") if self.external else ("ANONYMOUS",)
        return able if self.only is None else tuple(name for name in self.only if name in able)

    def choose(self, offered: list[str], hostname: str | None = None) -> tuple[str, ClientMechanism]:
        """Choose the best mechanism that the peer offers.

        Raises:
            AuthenticationError: no mechanism matches, or none may be used on this connection; the message
            names what the peer offers.
        """
        # In the order of our preference, not of the peer's: a peer could otherwise choose the weakest.
        common = [name for name in self.mechanisms() if name in offered]
        allowed = [name for name in common if self.private or name not in _SHOWS_SECRETS]
        if allowed:
            return allowed[0], self._made(allowed[0], hostname)
        shown = ", ".join(offered)[:_WORDS_MAX] or "no mechanism"
        if common:
            message = (
                f"{common[0]} would send the {self._secret} unencrypted: use amqps:// or wss://, or allow it"
                " with plain_without_tls"
            )
        else:
            message = f"the peer offers {shown}, and {self._given} given"
        raise AuthenticationError(message)

    @property
    def _secret(self) -> str:
        return "token" if self.token is not None else "password"

    @property
    def _given(self) -> str:
        only = "" if self.only is None else f" with mechanism {' or '.join(self.only)}"
        if self.token is not None:
            return f"a token{only} was"
        return (
            f"a user name and a password{only} were" if self.user is not None else f"no user name{only} was"
        )

    def _made(self, mechanism: str, hostname: str | None) -> ClientMechanism:
        user = self.user or ""
        if mechanism == "PLAIN":
            return _Simple(
                b"\0" + user.encode() + b"\0" + (self.password or "").encode(), "wrong user name or password"
            )
        if mechanism == "EXTERNAL":
            return _Simple(user.encode(), "the peer does not accept the user of the client certificate")
        if mechanism == "ANONYMOUS":
            return _Simple(b"anonymous", "the peer does not accept clients without a user")
        if mechanism == OAUTHBEARER:
            return _Bearer(oauthbearer_message(self.token or "", user, host=hostname))
        if mechanism == XOAUTH2:
            return _Bearer(xoauth2_message(self.token or "", user))
        return _Scram(ScramClient(ScramAlgorithm(mechanism), user, self.password or "", nonce=self.nonce()))


class _Simple:
    """A mechanism whose first message contains everything."""

    def __init__(self, message: bytes, refusal: str) -> None:
        self.refusal: Final = refusal
        self._message: Final = message

    def initial(self) -> bytes:
        return self._message

    def respond(self, challenge: bytes) -> bytes:  # noqa: ARG002 (every challenge is an error)
        message = "the peer sent a challenge, which this SASL mechanism does not have"
        raise AuthenticationError(message)

    def finish(self, data: bytes | None) -> None:
        pass


class _Scram:
    """SCRAM. Spec: RFC 5802."""

    refusal = "wrong user name or password"

    def __init__(self, client: ScramClient) -> None:
        self._client: Final = client
        self._steps = 0

    def initial(self) -> bytes:
        return self._client.first()

    def respond(self, challenge: bytes) -> bytes:
        self._steps += 1
        try:
            if self._steps == 1:
                return self._client.final(challenge)
            self._client.finish(challenge)  # some servers send their proof before the outcome
        except ScramError as error:
            raise AuthenticationError(str(error)) from error
        return b""

    def finish(self, data: bytes | None) -> None:
        if self._client.complete:
            return
        try:
            self._client.finish(data or b"")
        except ScramError as error:
            raise AuthenticationError(str(error)) from error


class _Bearer:
    """OAUTHBEARER and XOAUTH2. A challenge contains the reason of a refusal. Spec: RFC 7628."""

    def __init__(self, message: bytes) -> None:
        self.refusal = "the peer refused the token"
        self._message: Final = message

    def initial(self) -> bytes:
        return self._message

    def respond(self, challenge: bytes) -> bytes:
        try:
            status = str(json.loads(challenge)["status"])
        except (ValueError, TypeError, LookupError, RecursionError):
            status = ""
        if status:
            self.refusal = f"the peer refused the token: {status[:_WORDS_MAX]}"
        return b"\1"  # RFC 7628 3.2.3: this answer lets the peer end the exchange

    def finish(self, data: bytes | None) -> None:
        pass
