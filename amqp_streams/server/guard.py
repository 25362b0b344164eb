"""Who may come in, and how: what is offered to a peer, and the answers to the questions of its mechanism. One a node.

Law: nothing here tells a stranger whether there is such a user, neither by words nor by work. Passwords, proofs and tokens are in no
log line. Mechanisms that show the peer's secret are offered over TLS, on loopback, or where the configuration says so.
"""

import secrets
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import structlog

from amqp_streams.config import AnonymousAccess, NodeSettings
from amqp_streams.server.channel import ByteChannel
from amqp_streams.wire.mechanisms import (
    Anonymous,
    Answer,
    External,
    Failure,
    Mechanism,
    Plain,
    ScramAlgorithm,
    ScramKeys,
    Success,
    VerifyPlain,
)
from amqp_streams.wire.scram import ScramServer

NONCE_BYTES: Final = 18

log = structlog.get_logger("amqp_streams.server")


class PasswordCheck(Protocol):
    """Who may log in."""

    def verify(self, name: str, password: str) -> bool:
        """Whether it is the user's password. Slow (tens of ms): called on a thread."""


class KeyStore(Protocol):
    """What SCRAM needs of the users."""

    def called(self, name: str) -> str | None:
        """How the user is called here whom a peer calls so; None: there is none."""

    def offers(self, algorithm: ScramAlgorithm) -> bool:
        """Whether any user has keys for it."""

    def has_keys(self, name: str, algorithm: ScramAlgorithm) -> bool:
        """Whether this one has."""

    def keys(self, name: str, algorithm: ScramAlgorithm) -> ScramKeys:
        """The user's keys, or ones that look alike and that nobody can meet."""


@dataclass(frozen=True, slots=True)
class Login:
    """Who a connection is. `user`: None for anonymous; `groups` as its credentials name them; `expires_ms`: when they end, since 1970."""

    user: str | None = None
    groups: frozenset[str] = frozenset()
    expires_ms: int | None = None
    mechanism: str | None = None


class Guard:
    """The door of a node. `on_loop` calls on the event loop's thread from any other."""

    def __init__(
        self,
        settings: NodeSettings,
        *,
        executor: Executor,
        on_loop: Callable[[Callable[[], None]], None],
        passwords: PasswordCheck | None = None,
        keys: KeyStore | None = None,
    ) -> None:
        self._settings = settings
        self._executor: Final = executor
        self._on_loop: Final = on_loop
        self._passwords: Final = passwords
        self._keys: Final = keys

    def change(self, settings: NodeSettings) -> None:
        """Other settings from now on. Who is in stays in."""
        self._settings = settings

    def mechanisms(self, channel: ByteChannel) -> dict[str, Callable[[], Mechanism]]:
        """What is offered to this peer, strongest first.

        Never empty: a peer that may not come in at all fails at EXTERNAL, which makes it show no secret.
        """
        offered: dict[str, Callable[[], Mechanism]] = {}
        for algorithm in (ScramAlgorithm.SHA_512, ScramAlgorithm.SHA_256):
            if self._keys is not None and self._keys.offers(algorithm):
                offered[algorithm] = partial(_scram, algorithm)
        if self._passwords is not None and self._may_show_secrets(channel):
            offered["PLAIN"] = Plain
        if self.anonymous_allowed(channel):
            offered["ANONYMOUS"] = Anonymous
        return offered or {"EXTERNAL": partial(External, None, "nobody may log in here")}

    def anonymous_allowed(self, channel: ByteChannel) -> bool:
        """Whether a peer without a user is let in here."""
        rule = self._settings.anonymous
        return rule is AnonymousAccess.ALWAYS or (rule is AnonymousAccess.LOOPBACK and channel.loopback)

    def _may_show_secrets(self, channel: ByteChannel) -> bool:
        return channel.secure or channel.loopback or self._settings.plain_without_tls

    def check_password(self, asked: VerifyPlain, tell: Callable[[Answer], None]) -> None:
        """Check on a thread; `tell` is called on the loop."""
        if self._passwords is None:
            tell(Failure("nobody has a password"))
            return
        future = self._executor.submit(self._passwords.verify, asked.user, asked.password)
        future.add_done_callback(lambda done: self._on_loop(partial(self._checked, asked.user, done, tell)))

    def _checked(self, user: str, done: "Future[bool]", tell: Callable[[Answer], None]) -> None:
        if done.cancelled() or done.exception() is not None or not done.result():
            tell(Failure("wrong user or password"))
        else:
            tell(Success((self._keys.called(user) if self._keys is not None else None) or user))

    def find_keys(self, user: str, algorithm: ScramAlgorithm) -> Answer:
        """The user's SCRAM keys, or ones that look alike. Says in the log what to do for a user that was added before there was SCRAM."""
        assert self._keys is not None, "SCRAM is offered where there are keys"
        if self._keys.called(user) is not None and not self._keys.has_keys(user, algorithm):
            log.warning("user_without_scram", user=user, mechanism=str(algorithm), do="give the password again: amqp-streams user add")
        return self._keys.keys(user, algorithm)


def _scram(algorithm: ScramAlgorithm) -> Mechanism:
    return ScramServer(algorithm, nonce=secrets.token_urlsafe(NONCE_BYTES))
