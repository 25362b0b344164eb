"""Which mechanisms a client is offered, and the checks of passwords, keys and tokens.

One guard for each node.

Law: nothing here reveals to an unauthenticated client whether a user exists, neither by text nor by time. Log
lines never contain passwords, proofs or tokens. Mechanisms that send the client's secret are offered over
TLS, on loopback, or if the configuration allows it.
"""

import secrets
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import structlog

from amqp_streams.config import NodeSettings
from amqp_streams.errors import ConfigError
from amqp_streams.server.identity.certificates import user_of
from amqp_streams.server.identity.password_checks import PasswordChecks
from amqp_streams.server.identity.tokens import TokenCheck
from amqp_streams.server.limits.logins import Logins, peer_network
from amqp_streams.server.listening.channel import ByteChannel
from amqp_streams.wire.security.bearer import OAUTHBEARER, XOAUTH2, BearerServer
from amqp_streams.wire.security.mechanisms import (
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
    VerifyToken,
)
from amqp_streams.wire.security.saslprep import prepared_name
from amqp_streams.wire.security.scram import ScramServer
from service_parts.settings.choices import AnonymousAccess

NONCE_BYTES: Final = 18
QUIET_MS: Final = 10_000
"""Log lines about limited logins: at most one in this many milliseconds, with the number of lines that were
left out.
"""
OTHER: Final = "other"
"""The label in metrics for mechanisms that the node does not offer. Clients could otherwise create any number
of labels.
"""

WITHOUT_SCRAM_MAX: Final = 10_000
"""How many users without SCRAM keys are remembered as reported, so that each is reported once."""
_SHOWN_MAX: Final = 64

log = structlog.get_logger("amqp_streams.server")


class PasswordCheck(Protocol):
    """Checks passwords."""

    def verify(self, name: str, password: str) -> bool:
        """Whether this is the user's password. Takes tens of milliseconds, so it is called on a thread."""


class KeyStore(Protocol):
    """The SCRAM keys of the users."""

    def called(self, name: str) -> str | None:
        """The user's name in the users file, for a name that a client sent. None: the user does not exist."""

    def offers(self, algorithm: ScramAlgorithm) -> bool:
        """Whether any user has keys for this algorithm."""

    def has_keys(self, name: str, algorithm: ScramAlgorithm) -> bool:
        """Whether this user has keys for this algorithm."""

    def keys(self, name: str, algorithm: ScramAlgorithm) -> ScramKeys:
        """The user's keys.

        For an unknown user: keys that look like real ones and that no password matches.
        """


class Around(Protocol):
    """What the guard needs of the event loop and the clocks."""

    def on_loop(self, call: Callable[[], None]) -> None:
        """Call `call` on the event loop's thread. May be used from any thread."""

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call `call` once, after this delay."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""

    def monotonic_ms(self) -> int:
        """Milliseconds of a monotonic clock."""


@dataclass(frozen=True, slots=True)
class Login:
    """The identity of a connection.

    `user`: None for anonymous. `groups`: as the credentials name them. `expires_ms`: when the credentials
    expire, since 1970.
    """

    user: str | None = None
    groups: frozenset[str] = frozenset()
    expires_ms: int | None = None
    mechanism: str | None = None


class Guard:
    """Decides which clients may log in to a node."""

    def __init__(
        self,
        settings: NodeSettings,
        around: Around,
        *,
        executor: Executor,
        passwords: PasswordCheck | None = None,
        keys: KeyStore | None = None,
    ) -> None:
        """Read the keys for tokens.

        Raises:
            ConfigError: the keys are not usable.
        """
        limits = settings.limits
        self.around: Final = around
        self.counts: Final[Counter[tuple[str, str]]] = Counter()
        """How many logins there were, by mechanism and result (ok, failed, limited)."""
        self._settings = settings
        self._keys: Final = keys
        self._tokens = None if settings.oauth is None else TokenCheck(settings.oauth, around.now_ms)
        self._checks: Final = (
            None
            if passwords is None
            else PasswordChecks(
                passwords.verify, executor, waiting_max=limits.password_checks, on_loop=around.on_loop
            )
        )
        self._logins: Final = Logins(
            address_burst=limits.login_failures,
            user_burst=limits.user_login_failures,
            interval_ms=limits.login_interval_ms,
        )
        self._without_scram: Final[set[str]] = set()
        self._quiet_until_ms = 0
        self._left_out = 0

    def change(self, settings: NodeSettings) -> None:
        """Use other settings from now on. Existing connections stay."""
        self._settings = settings

    def reload_tokens(self) -> bool | None:
        """Read the keys for tokens again.

        Returns False if they are not usable: the old keys stay, and the reason is logged. None: tokens are
        not configured.
        """
        oauth = self._settings.oauth
        try:
            self._tokens = None if oauth is None else TokenCheck(oauth, self.around.now_ms)
        except ConfigError as error:
            log.error("oauth_not_reloaded", reason=str(error))
            return False
        return None if oauth is None else True

    # -- what is offered

    def mechanisms(self, channel: ByteChannel) -> dict[str, Callable[[], Mechanism]]:
        """Return the mechanisms for this client, strongest first.

        Never empty: a client that may not log in at all is offered EXTERNAL only, which fails without making
        the client send a secret.
        """
        offered: dict[str, Callable[[], Mechanism]] = {}
        # Offered only with a certificate: clients choose EXTERNAL first, and would fail without one.
        if channel.certificate and self._settings.external:
            offered["EXTERNAL"] = partial(self._external, channel)
        for algorithm in (ScramAlgorithm.SHA_512, ScramAlgorithm.SHA_256):
            if self._keys is not None and self._keys.offers(algorithm):
                offered[algorithm] = partial(_scram, algorithm)
        private = channel.secure or channel.loopback or self._settings.plain_without_tls
        if self._tokens is not None and private:
            for name in (OAUTHBEARER, XOAUTH2):
                offered[name] = partial(BearerServer, name, discovery=self._tokens.settings.discovery)
        if self._checks is not None and private:
            offered["PLAIN"] = Plain
        if self.anonymous_allowed(channel):
            offered["ANONYMOUS"] = Anonymous
        return offered or {
            "EXTERNAL": partial(External, None, "the node does not accept a login on this connection")
        }

    def anonymous_allowed(self, channel: ByteChannel) -> bool:
        """Whether this client may connect without a user."""
        rule = self._settings.anonymous
        # A page of another host may run in a browser inside a network where no client logs in.
        if rule is AnonymousAccess.ALWAYS:
            return not channel.foreign
        return rule is AnonymousAccess.LOOPBACK and channel.loopback

    def certified_user(self, channel: ByteChannel) -> str | None:
        """The user that the client's certificate belongs to, by the current rules."""
        return user_of(channel.certificate or {}, self._settings.external)

    def _external(self, channel: ByteChannel) -> Mechanism:
        return External(self.certified_user(channel), "no rule matches the certificate")

    # -- questions

    def check_password(
        self,
        peer: str,
        asked: VerifyPlain,
        *,
        wanted: Callable[[], bool],
        on_result: Callable[[Answer], None],
    ) -> bool:
        """Queue a password check, which runs on a thread. Returns False if too many checks are waiting.

        `wanted` is asked before the check whether the answer is still needed. `on_result` is called with the
        answer, on the event loop's thread.
        """
        assert self._checks is not None, "PLAIN is offered where there are passwords"

        def checked(good: bool) -> None:
            # The name as the file has it: access rules and cursors must not depend on how the client writes
            # it.
            called = self._keys.called(asked.user) if self._keys is not None else None
            on_result(Success(called or asked.user) if good else Failure("wrong user or password"))

        return self._checks.ask(peer_network(peer), asked, wanted=wanted, on_result=checked)

    def find_keys(self, user: str, algorithm: ScramAlgorithm) -> Answer:
        """Return the user's SCRAM keys, or, for an unknown user, keys that look like real ones.

        If the user was added before SCRAM was supported, a log line contains the remedy.
        """
        assert self._keys is not None, "SCRAM is offered where there are keys"
        known = self._keys.called(user)
        if (
            known is not None
            and not self._keys.has_keys(user, algorithm)
            and known not in self._without_scram
        ):
            if len(self._without_scram) < WITHOUT_SCRAM_MAX:
                self._without_scram.add(known)
            remedy = "set the password again: amqp-streams user add"
            log.warning("user_without_scram", user=known, mechanism=str(algorithm), remedy=remedy)
        return self._keys.keys(user, algorithm)

    def check_token(self, asked: VerifyToken) -> Answer:
        """Check a token. Returns the user, or the reason of the refusal."""
        return (
            Failure("the node no longer accepts tokens")
            if self._tokens is None
            else self._tokens.verify(asked.token)
        )

    def is_removed(self, login: Login) -> bool:
        """Whether the user of a password was removed during the login: the check used the old users."""
        by_password = login.mechanism == "PLAIN" or login.mechanism in set(ScramAlgorithm)
        return by_password and self._keys is not None and self._keys.called(login.user or "") is None

    # -- results of logins

    def limited(self, peer: str, user: str | None) -> bool:
        """Whether too many logins failed, so that this one must not be checked now."""
        return self._logins.limited(peer, self._called(user), self.around.monotonic_ms())

    def note_success(self, peer: str, login: Login) -> None:
        """Count and log a successful login."""
        mechanism = login.mechanism or OTHER
        self.counts[mechanism, "ok"] += 1
        if login.user is not None:
            self._logins.succeeded(peer, login.user)
        log.debug("authenticated", peer=peer, user=login.user or "", mechanism=mechanism)

    def note_failure(self, peer: str, *, mechanism: str, user: str | None, reason: str) -> None:
        """Count and log a login with wrong credentials."""
        self.counts[mechanism, "failed"] += 1
        self._logins.failed(peer, self._called(user), self.around.monotonic_ms())
        log.warning("login_failed", peer=peer, mechanism=mechanism, user=_shown(user), reason=reason)

    def note_limited(self, peer: str, *, mechanism: str, user: str | None, reason: str) -> None:
        """Count and log a login that was not checked because of a limit."""
        self.counts[mechanism, "limited"] += 1
        now_ms = self.around.monotonic_ms()
        if now_ms < self._quiet_until_ms:
            self._left_out += 1
            return
        log.warning(
            "login_limited",
            peer=peer,
            mechanism=mechanism,
            user=_shown(user),
            reason=reason,
            left_out=self._left_out,
        )
        self._quiet_until_ms, self._left_out = now_ms + QUIET_MS, 0

    def _called(self, user: str | None) -> str | None:
        if user is None:
            return None
        # Unknown names are prepared in the same way as known ones: both must be counted under the same key.
        return (self._keys.called(user) if self._keys is not None else None) or prepared_name(user)


def _scram(algorithm: ScramAlgorithm) -> Mechanism:
    return ScramServer(algorithm, nonce=secrets.token_urlsafe(NONCE_BYTES))


def _shown(user: str | None) -> str:
    return (user or "")[:_SHOWN_MAX]
