"""One connection: bytes from a channel through SASL into the engine, and back. The thin shell around `Dispatch`.

Stages: the security layer (`SaslServer`), then AMQP. A peer that is too slow to open, silent for too long, or breaks the protocol is
closed; a peer that does not read stops being written to (`blocked`), and its links wait.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Protocol

from amqp_streams import names
from amqp_streams.config import AnonymousAccess, NodeSettings
from amqp_streams.errors import PeerError
from amqp_streams.server.channel import ByteChannel
from amqp_streams.server.consumer import ConsumerLink
from amqp_streams.server.control import ReplyLink
from amqp_streams.server.dispatch import Dispatch
from amqp_streams.server.engine import Engine
from amqp_streams.server.links import AnyLink
from amqp_streams.server.producer import ProducerLink
from amqp_streams.server.service import TICK_S, EventService
from amqp_streams.wire import sasl
from amqp_streams.wire.frames import FLOW_SIZE_MAX, EchoFinder


class PasswordCheck(Protocol):
    """Who may log in."""

    def verify(self, name: str, password: str) -> bool:
        """Whether it is the user's password. Slow (tens of ms): called on a thread."""


def anonymous_allowed(rule: AnonymousAccess, *, loopback: bool) -> bool:
    """Whether a peer without a user is let in here."""
    return rule is AnonymousAccess.ALWAYS or (rule is AnonymousAccess.LOOPBACK and loopback)


def mechanisms(settings: NodeSettings, channel: ByteChannel, *, users: bool) -> dict[str, Callable[[], sasl.Mechanism]]:
    """What is offered to this peer, strongest first. Never empty: a peer that may not come in at all fails at PLAIN."""
    offered: dict[str, Callable[[], sasl.Mechanism]] = {}
    if users and (channel.secure or channel.loopback or settings.plain_without_tls):
        offered["PLAIN"] = sasl.Plain
    if anonymous_allowed(settings.anonymous, loopback=channel.loopback):
        offered["ANONYMOUS"] = sasl.Anonymous
    return offered or {"PLAIN": sasl.Plain}


class AmqpConnection:
    """Consumes a channel's bytes (`channel.Connection`)."""

    __slots__ = (
        "_channel",
        "_dispatch",
        "_echoes",
        "_engine",
        "_executor",
        "_lost",
        "_open_before_ms",
        "_other_frames",
        "_sasl",
        "_service",
        "_stalled",
        "_users",
        "user",
    )

    def __init__(self, service: EventService, channel: ByteChannel, *, users: PasswordCheck | None, executor: Executor) -> None:
        self._service = service
        self._channel = channel
        self._users = users
        self._executor = executor
        self._sasl: sasl.SaslServer | None = sasl.SaslServer(mechanisms(service.settings, channel, users=users is not None))
        self._engine: Engine | None = None
        self._dispatch: Dispatch | None = None
        self._echoes = EchoFinder()
        self._other_frames = 0
        self._lost = False
        self._stalled: set[ConsumerLink] = set()
        self._open_before_ms = service.monotonic_ms() + service.limits.unauthenticated_ms
        self.user: str | None = None
        service.connections.add(self)

    # -- bytes in

    def received(self, data: memoryview) -> None:
        """Bytes arrived."""
        if self._engine is not None:
            self._feed(data)
        elif self._sasl is not None:
            self._perform(self._sasl.feed(bytes(data)))

    def _feed(self, data: memoryview | bytes) -> None:
        engine, dispatch = self._engine, self._dispatch
        assert engine is not None
        assert dispatch is not None
        if not engine.push(data):
            engine.end_of_input()
        opened = dispatch.opened
        dispatch.run()
        if dispatch.opened and not opened:
            self._tick_again()  # the peer's wish for heartbeats counts from its open, not from the next tick
        self._answer_echoes(data)
        self.flush()
        if self._stalled:
            self._unstall()

    def _answer_echoes(self, block: memoryview | bytes) -> None:
        """The engine does not answer flows that ask for one (AMQP 2.7.4): any new flow of the link does."""
        engine, dispatch = self._engine, self._dispatch
        assert engine is not None
        assert dispatch is not None
        others, self._other_frames = self._other_frames, engine.frames - dispatch.messages
        if self._other_frames == others:  # one transfer a message and nothing else: no flow was completed
            self._echoes.skip(bytes(block[-FLOW_SIZE_MAX:]))
        elif self._echoes.feed(bytes(block)):
            for link in dispatch.links.values():
                if isinstance(link, ProducerLink):
                    link.show_flow()

    # -- the security layer

    def _perform(self, events: list[sasl.Event]) -> None:
        for event in events:
            match event:
                case sasl.Send(data):
                    self._channel.write(data)
                case sasl.VerifyPlain(user, password):
                    self._verify(user, password)
                case sasl.Authenticated(user, mechanism, _, leftover):
                    self.user = user
                    self._service.note("authenticated", peer=self._channel.peer, user=user or "", mechanism=mechanism)
                    self._begin_amqp(leftover)
                case sasl.NoSasl(leftover):
                    self._begin_without_sasl(leftover)
                case sasl.Failed(reason):
                    self._service.warn("sasl_failed", peer=self._channel.peer, reason=reason)
                    self._sasl = None
                    self._channel.close()

    def _verify(self, user: str, password: str) -> None:
        """Check on a thread: a good password hash takes tens of milliseconds."""
        self._channel.pause_reading()
        check = self._users.verify if self._users is not None else _nobody
        future = self._executor.submit(check, user, password)
        future.add_done_callback(
            lambda done: self._service.on_loop(partial(self._verified, user, done.exception() is None and done.result()))
        )

    def _verified(self, user: str, good: bool) -> None:  # the answer itself
        if self._lost or self._sasl is None or self._sasl.done:
            return
        self._channel.resume_reading()
        self._perform(self._sasl.verified(user if good else None))

    def _begin_without_sasl(self, leftover: bytes) -> None:
        if anonymous_allowed(self._service.settings.anonymous, loopback=self._channel.loopback):
            self._begin_amqp(leftover)
            return
        self._service.warn("sasl_required", peer=self._channel.peer)
        self._sasl = None
        self._channel.write(sasl.SASL_HEADER)  # AMQP 2.2: the header that we would accept, then close
        self._channel.close()

    def _begin_amqp(self, leftover: bytes) -> None:
        limits = self._service.limits
        self._sasl = None
        self._engine = Engine(frame_bytes_max=limits.frame_bytes, channels_max=limits.sessions, idle_timeout_ms=limits.idle_timeout_ms)
        self._dispatch = Dispatch(self._service, self, self._engine, self._channel.peer)
        self._feed(leftover)

    # -- bytes out

    def blocked(self) -> bool:
        """More than enough is on its way to this peer already."""
        return self._channel.pending() > self._service.limits.connection_pending_bytes

    def flush(self) -> None:
        """Write what the engine has to send, unless the peer takes nothing."""
        engine = self._engine
        if engine is None or self._lost:
            return
        while not self.blocked():
            data = engine.pull()
            if not data:
                if engine.finished:
                    self._channel.close()
                return
            self._channel.write(data)

    def drained(self) -> None:
        """The channel has room again."""
        self.flush()
        self._unstall()

    def stall(self, link: ConsumerLink) -> None:
        """Pump this link again when the peer has taken or settled something."""
        self._stalled.add(link)

    def _unstall(self) -> None:
        stalled, self._stalled = self._stalled, set()
        for consumer in stalled:
            self._service.pump_later(consumer)

    def pause(self) -> None:
        """Stop reading: too much of what was read waits for the disk."""
        self._channel.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if not self._lost:
            self._channel.resume_reading()

    def reply_link(self, address: str | None) -> ReplyLink | None:
        """The link of this connection that answers to this address travel on; without an address, the only one."""
        links = [] if self._dispatch is None else [link for link in self._dispatch.links.values() if isinstance(link, ReplyLink)]
        if address is None:
            return links[0] if len(links) == 1 else None
        return next((link for link in links if address in link.grant.addresses), None)

    # -- its life

    def find_links(self, wanted: Callable[[AnyLink], bool]) -> list[AnyLink]:
        """The links that match."""
        return [] if self._dispatch is None else [link for link in self._dispatch.links.values() if wanted(link)]

    def tick(self, now_ms: int) -> None:
        """Heartbeats, and the time limits of peers that do not speak."""
        engine, dispatch = self._engine, self._dispatch
        if (dispatch is None or not dispatch.opened) and now_ms > self._open_before_ms:
            self._service.warn("open_timeout", peer=self._channel.peer)
            self._channel.abort()
            return
        if engine is not None and dispatch is not None:
            deadline_ms = engine.tick(now_ms)
            dispatch.run()
            self._unstall()
            self.flush()
            if 0 < deadline_ms - now_ms < TICK_S * 1000:  # a peer that wants heartbeats oftener than the service ticks
                self._service.later(deadline_ms - now_ms, self._tick_again)

    def _tick_again(self) -> None:
        if not self._lost:
            self.tick(self._service.monotonic_ms())

    def shut(self, error: PeerError) -> None:
        """Close the connection, saying why."""
        if self._engine is not None and self._dispatch is not None:
            for link in tuple(self._dispatch.links.values()):
                link.close(PeerError(names.LINK_DETACH_FORCED, error.description))
            self._engine.close(error)
            self.flush()
        self._sasl = None
        self._channel.close()

    def lost(self) -> None:
        """The channel is gone. Links die before the engine's memory does."""
        self._lost = True
        self._service.connections.discard(self)
        if self._dispatch is not None:
            self._dispatch.lost()
        if self._engine is not None:
            self._engine.free()
            self._engine = None
        self._sasl = None


def _nobody(_user: str, _password: str) -> bool:
    return False
