"""The client's side of the SASL mechanisms: who we are, and what we say to prove it. No I/O.

One law: what the other side could take for itself (a password, a token) is said only where `private`; a
password is proved rather than said (SCRAM) wherever the other side can.
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
    """One attempt."""

    @property
    def refusal(self) -> str:
        """What it means when the other side says no."""

    def initial(self) -> bytes:
        """The first message."""

    def respond(self, challenge: bytes) -> bytes:
        """The answer to a challenge. Raises AuthenticationError."""

    def finish(self, data: bytes | None) -> None:
        """The other side says yes, with this. Raises AuthenticationError: it has not proved itself."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we are. Without user and token: EXTERNAL when `external` (a client certificate is shown), else
    ANONYMOUS.

    `private`: nobody else can listen on the connection. `only`: the mechanisms that may be used, best first;
    None: any.
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    external: bool = False
    token: str | None = field(default=None, repr=False)
    private: bool = True
    only: tuple[str, ...] | None = None
    nonce: Callable[[], str] = field(default=_nonce, repr=False)

    def mechanisms(self) -> tuple[str, ...]:
        """What we can do, best first, allowed here or not."""
        if self.token is not None:
            able: tuple[str, ...] = (OAUTHBEARER, XOAUTH2)
        elif self.user is not None:
            # A user without a password, and a certificate: it names the user that the certificate should
            # stand for.
            able = (
                ("EXTERNAL",)
                if self.external and self.password is None
                else (*reversed(ScramAlgorithm), "PLAIN")
            )
        else:
            able = ("EXTERNAL", "ANONYMOUS") if self.external else ("ANONYMOUS",)
        return able if self.only is None else tuple(name for name in self.only if name in able)

    def choose(self, offered: list[str], hostname: str | None = None) -> tuple[str, ClientMechanism]:
        """The best mechanism of those that the other side offers.

        Raises:
            AuthenticationError: there is none, or none that may be used on this connection; says which are
            offered.
        """
        common = [name for name in self.mechanisms() if name in offered]
        allowed = [name for name in common if self.private or name not in _SHOWS_SECRETS]
        if allowed:
            return allowed[0], self._made(allowed[0], hostname)
        told = ", ".join(offered)[:_WORDS_MAX] or "no mechanism"
        if common:
            message = (
                f"{common[0]} would show the {self._secret} to the network: use amqps:// or wss://, or allow"
                " it (plain_without_tls)"
            )
        else:
            message = f"the peer offers {told}, and {self._given} given"
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
            return _Simple(user.encode(), "the certificate stands for nobody whom the peer lets in")
        if mechanism == "ANONYMOUS":
            return _Simple(b"anonymous", "the peer lets nobody in without a user")
        if mechanism == OAUTHBEARER:
            return _Bearer(oauthbearer_message(self.token or "", user, host=hostname))
        if mechanism == XOAUTH2:
            return _Bearer(xoauth2_message(self.token or "", user))
        return _Scram(ScramClient(ScramAlgorithm(mechanism), user, self.password or "", nonce=self.nonce()))


class _Simple:
    """Everything is in the first message."""

    def __init__(self, message: bytes, refusal: str) -> None:
        self.refusal: Final = refusal
        self._message: Final = message

    def initial(self) -> bytes:
        return self._message

    def respond(self, challenge: bytes) -> bytes:  # noqa: ARG002  there is nothing to say whatever it is
        message = "the peer asks for more than the mechanism has"
        raise AuthenticationError(message)

    def finish(self, data: bytes | None) -> None:
        pass


class _Scram:
    """RFC 5802."""

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
            self._client.finish(challenge)  # some servers prove themselves before the outcome
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
    """RFC 7628. A challenge says why it is no."""

    def __init__(self, message: bytes) -> None:
        self.refusal = "the token is not good"
        self._message: Final = message

    def initial(self) -> bytes:
        return self._message

    def respond(self, challenge: bytes) -> bytes:
        try:
            told = json.loads(challenge)
            status = str(told["status"])
        except (ValueError, TypeError, LookupError, RecursionError):
            status = ""
        if status:
            self.refusal = f"the token is not good: {status[:_WORDS_MAX]}"
        return b"\1"

    def finish(self, data: bytes | None) -> None:
        pass
