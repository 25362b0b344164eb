"""The first part of a connection: bytes through the SASL layer until it is known who the peer is. The thin shell around `SaslServer`.

It writes what the layer says, brings its questions to the guard and the answers back, and ends by calling `admit` or closing the channel.
"""

from collections.abc import Callable
from typing import Final

import structlog

from amqp_streams.server.channel import ByteChannel
from amqp_streams.server.guard import Guard, Login
from amqp_streams.wire import sasl
from amqp_streams.wire.mechanisms import Answer, FindKeys, VerifyPlain, VerifyToken

_SHOWN_MAX: Final = 64

log = structlog.get_logger("amqp_streams.server")


class SecurityLayer:
    """One connection's. `admit` is called once, with who it is and what it sent behind the layer; or never."""

    __slots__ = ("_admit", "_channel", "_guard", "_sasl")

    def __init__(self, guard: Guard, channel: ByteChannel, admit: Callable[[Login, bytes], None]) -> None:
        self._guard: Final = guard
        self._channel: Final = channel
        self._admit: Final = admit
        self._sasl: sasl.SaslServer | None = sasl.SaslServer(guard.mechanisms(channel))

    def received(self, data: bytes) -> None:
        """Bytes from the peer."""
        if self._sasl is not None:
            self._perform(self._sasl.feed(data))

    def end(self) -> None:
        """The channel closes: nothing is listened to or said any more."""
        self._sasl = None

    def _perform(self, events: list[sasl.Event]) -> None:
        for event in events:
            match event:
                case sasl.Send(data):
                    self._channel.write(data)
                case VerifyPlain():
                    self._channel.pause_reading()
                    self._guard.check_password(event, self._told)
                case FindKeys(user, algorithm):
                    self._told(self._guard.find_keys(user, algorithm))
                case VerifyToken():
                    raise AssertionError
                case sasl.Authenticated(user, mechanism, _, leftover, groups, expires_ms):
                    log.debug("authenticated", peer=self._channel.peer, user=user or "", mechanism=mechanism)
                    self._let_in(Login(user, groups, expires_ms, mechanism), leftover)
                case sasl.NoSasl(leftover):
                    self._without_sasl(leftover)
                case sasl.Failed():
                    self._refuse(event)

    def _told(self, answer: Answer) -> None:
        if self._sasl is None or self._sasl.done:
            return
        self._channel.resume_reading()
        self._perform(self._sasl.answer(answer))

    def _let_in(self, login: Login, leftover: bytes) -> None:
        self._sasl = None
        self._admit(login, leftover)

    def _without_sasl(self, leftover: bytes) -> None:
        if self._guard.anonymous_allowed(self._channel):
            self._let_in(Login(), leftover)
            return
        log.warning("sasl_required", peer=self._channel.peer)
        self._channel.write(sasl.SASL_HEADER)  # AMQP 2.2: the header that we would accept, then close
        self._close()

    def _refuse(self, failed: sasl.Failed) -> None:
        who = {} if failed.mechanism is None else {"mechanism": failed.mechanism, "user": (failed.user or "")[:_SHOWN_MAX]}
        log.warning("sasl_failed", peer=self._channel.peer, **who, reason=failed.reason)
        self._close()

    def _close(self) -> None:
        self._sasl = None
        self._channel.close()
