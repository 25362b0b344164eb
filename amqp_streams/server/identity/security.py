"""The first part of a connection: bytes pass the SASL layer until the client is identified.

A thin shell around `SaslServer`.

It writes the layer's output, passes its questions to the guard and returns the answers. In the end it calls
`admit` or closes the channel.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from amqp_streams.server.identity.guard import OTHER, Guard, Login
from amqp_streams.server.listening.channel import ByteChannel
from amqp_streams.wire.security import sasl
from amqp_streams.wire.security.mechanisms import (
    Answer,
    Failure,
    FindKeys,
    Question,
    Success,
    VerifyPlain,
    VerifyToken,
)

LIMITED_MS: Final = 1000
"""How many milliseconds a client waits for its answer if too many logins failed."""

log = structlog.get_logger("amqp_streams.server")


class SecurityLayer:
    """The security layer of one connection.

    `admit` is called at most once, with the login and the bytes that followed the layer.
    """

    __slots__ = ("_admit", "_asking", "_channel", "_counted", "_guard", "_held", "_sasl")

    def __init__(self, guard: Guard, channel: ByteChannel, admit: Callable[[Login, bytes], None]) -> None:
        self._guard: Final = guard
        self._channel: Final = channel
        self._admit: Callable[[Login, bytes], None] | None = admit
        self._sasl: sasl.SaslServer | None = sasl.SaslServer(guard.mechanisms(channel))
        self._asking = False
        self._held = False
        self._counted = False

    def received(self, data: bytes) -> None:
        """Process bytes from the client."""
        layer = self._sasl
        if layer is None or self._held:
            return
        # Checked for each block of bytes: other logins may have failed since the challenge was sent.
        if layer.claimed is None or self._asking or self._counted or not self._limited():
            self._perform(layer.feed(data))

    def end(self) -> None:
        """Ignore all further bytes: the channel closes."""
        self._sasl = self._admit = None

    def _perform(self, events: list[sasl.Event]) -> None:
        for event in events:
            match event:
                case sasl.Send(data):
                    self._channel.write(data)
                case VerifyPlain() | FindKeys() | VerifyToken():
                    self._ask(event)
                case sasl.Authenticated(user, mechanism, _, leftover, groups, expires_ms):
                    login = Login(user, groups, expires_ms, mechanism)
                    if self._guard.is_removed(login):
                        log.warning("user_removed", user=user)
                        self._close()
                        return
                    self._guard.note_success(self._channel.peer, login)
                    self._let_in(login, leftover)
                case sasl.NoSasl(leftover):
                    self._without_sasl(leftover)
                case sasl.Failed():
                    self._refuse(event)

    # -- questions

    def _ask(self, question: Question) -> None:
        if isinstance(question, VerifyToken):
            # No one can guess a token, and only the check says whose it is: a valid token is accepted however
            # many logins from its address failed.
            answer = self._guard.check_token(question)
            if isinstance(answer, Success) or not self._limited():
                self._told(answer)
            return
        if self._limited():
            return
        match question:
            case FindKeys(user, algorithm):
                self._told(self._guard.find_keys(user, algorithm))
            case VerifyPlain():
                self._asking = True
                # One question at a time: bytes that follow must not be read before the answer.
                self._channel.pause_reading()
                if not self._guard.check_password(
                    self._channel.peer, question, wanted=self._wanted, on_result=self._told
                ):
                    self._hold("too many passwords are waiting for a check")

    def _wanted(self) -> bool:
        """Whether the client still waits for the result.

        If too many logins have failed in the meantime, it must not get the result.
        """
        return self._sasl is not None and not self._sasl.done and not self._held and not self._limited()

    def _told(self, answer: Answer) -> None:
        layer = self._sasl
        if layer is None or layer.done or self._held:
            return
        self._asking = False
        self._channel.resume_reading()
        if isinstance(answer, Failure):
            # counted now, not when the client confirms that it has read the answer: it may never do so
            self._count(answer.reason)
        self._perform(layer.answer(answer))

    # -- ends

    def _let_in(self, login: Login, leftover: bytes) -> None:
        self._sasl = None
        if self._admit is not None:  # the channel has not ended meanwhile
            self._admit(login, leftover)

    def _without_sasl(self, leftover: bytes) -> None:
        if self._guard.anonymous_allowed(self._channel):
            self._let_in(Login(), leftover)
            return
        log.warning("sasl_required", peer=self._channel.peer)
        # AMQP 2.2: send the header that the node would accept, then close
        self._channel.write(sasl.SASL_HEADER)
        self._close()

    def _refuse(self, failed: sasl.Failed) -> None:
        if failed.guess:
            self._count(failed.reason)
        elif not self._held:
            log.warning(
                "sasl_failed", peer=self._channel.peer, mechanism=failed.mechanism or "", reason=failed.reason
            )
        self._close()

    def _count(self, reason: str) -> None:
        if not self._counted and self._sasl is not None:
            # Once for each connection: an exchange has several messages that can fail.
            self._counted = True
            mechanism, user = self._sasl.mechanism or OTHER, self._sasl.claimed
            self._guard.note_failure(self._channel.peer, mechanism=mechanism, user=user, reason=reason)

    def _limited(self) -> bool:
        if self._sasl is None or not self._guard.limited(self._channel.peer, self._sasl.claimed):
            return False
        self._hold("too many logins failed")
        return True

    def _hold(self, reason: str) -> None:
        """Let the client wait for LIMITED_MS, then answer that it must try again later."""
        assert self._sasl is not None
        self._held = True
        self._channel.pause_reading()
        mechanism, user = self._sasl.mechanism or OTHER, self._sasl.claimed
        self._guard.note_limited(self._channel.peer, mechanism=mechanism, user=user, reason=reason)
        self._guard.around.later(LIMITED_MS, partial(self._let_go, reason))

    def _let_go(self, reason: str) -> None:
        if self._sasl is not None and not self._sasl.done:
            self._perform(self._sasl.unavailable(reason))

    def _close(self) -> None:
        self._sasl = None
        self._channel.close()
