"""One AMQP connection: received bytes pass the SASL layer and reach Proton, and Proton's output goes back.

A thin shell around `Dispatch`.

Stages: the security layer (`SecurityLayer`), then AMQP. The node closes a connection whose client does not
send `open` in time, is silent for too long, or violates the protocol. If a client does not read, the node
stops writing to it (`blocked`), and its links wait.
"""

from collections.abc import Callable
from itertools import count
from time import perf_counter
from typing import Any, Final

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.proton import sessions
from amqp_streams.proton.engine import Engine
from amqp_streams.proton.incoming import plainness
from amqp_streams.server.dispatch import Dispatch
from amqp_streams.server.identity.guard import Guard, Login
from amqp_streams.server.identity.security import SecurityLayer
from amqp_streams.server.links.control import ReplyLink, reply_link
from amqp_streams.server.links.flows import Flows
from amqp_streams.server.links.link import SESSION_BYTES_MAX, AnyLink, OutgoingLink, Pause, Pumped
from amqp_streams.server.links.turns import BUDGET_S
from amqp_streams.server.listening.channel import ByteChannel
from amqp_streams.server.listening.pieces import Pieces
from amqp_streams.server.regular import TICK_S
from amqp_streams.server.service import EventService
from amqp_streams.streams.access import Identity
from amqp_streams.wire.formats import FormatFinder
from amqp_streams.wire.frames import FLOW_SIZE_MAX, Echo, EchoFinder
from amqp_streams.wire.nuls import NulFinder

TURN_S: Final = BUDGET_S
"""How long a connection processes what has just arrived, plus one event: a block may have thousands."""
_NUMBERS: Final = count(1)
_HOLDING: Final = frozenset((Pause.DISK, Pause.QUOTA, Pause.LOG))


class AmqpConnection:
    """Processes the bytes of one channel (`channel.Connection`)."""

    __slots__ = (
        "_channel",
        "_echoes",
        "_engine",
        "_flows",
        "_heard_ms",
        "_lost",
        "_open_before_ms",
        "_other_frames",
        "_pieces",
        "_reads",
        "_reads_at_tick",
        "_security",
        "_service",
        "_stalled",
        "_wishes",
        "_without_room",
        "account",
        "dispatch",
        "expires_ms",
        "formats",
        "mechanism",
        "nuls",
        "number",
        "pauses",
        "since_ms",
        "user",
        "user_groups",
    )

    def __init__(self, service: EventService, channel: ByteChannel, guard: Guard) -> None:
        self._service = service
        self._channel = channel
        self._security = SecurityLayer(guard, channel, self._admitted)
        self._engine: Engine | None = None
        self.dispatch: Dispatch | None = None
        self._echoes = EchoFinder()
        self.formats = FormatFinder(plainness)
        self.nuls = NulFinder()
        self._other_frames = 0
        self._pieces = Pieces()
        self._lost = False
        self._flows: Flows | None = None
        self.pauses: set[Pause] = set()
        self._reads = self._reads_at_tick = 0
        self._heard_ms = 0
        self._stalled: dict[Pumped, None] = {}
        self._wishes: list[Echo] = []
        self._without_room: dict[Pumped, None] = {}
        self._open_before_ms = service.monotonic_ms() + service.limits.unauthenticated_ms
        self.user: str | None = None
        self.user_groups: frozenset[str] = frozenset()
        self.expires_ms: int | None = None
        self.mechanism: str | None = None
        """How the client logged in. None: without a SASL layer, or not yet."""
        self.account = service.quotas.of(None)
        self.since_ms = service.now_ms()
        self.number = next(_NUMBERS)
        service.connections[self] = None

    # -- bytes in

    def received(self, data: memoryview) -> None:
        """Process bytes from the client."""
        if self._engine is None:
            self._security.received(bytes(data))
        elif self._pieces.waiting:
            self._pieces.keep(data)  # the transport delivered them in spite of the pause
        else:
            self._take(data, self._service.iteration.ends_s())

    def _take(self, block: memoryview, until: float, *, waited: bool = False) -> None:
        """Process a block until this time; see `Pieces.feed`. The rest waits for a later loop iteration."""
        done = self._pieces.feed(block, until, self._feed, at_once=waited)
        if self._pieces.waiting:
            self.pause(Pause.TURN)
            if not self.held:  # otherwise `resume` continues
                self._service.backlog.add(self)
        elif done and waited:
            self.resume(Pause.TURN)

    def _feed(self, data: memoryview) -> bool:
        """Process some bytes. Returns whether the next ones may follow at once."""
        engine, dispatch = self._engine, self.dispatch
        assert engine is not None
        assert dispatch is not None
        self._reads += 1
        before = engine.frames
        # False: Proton failed. The end of the input makes it report the error as an event.
        if not engine.push(data):
            engine.end_of_input()
        # Proton cuts names at a NUL and drops the message-format: both finders read the same bytes.
        self.formats.feed(data, engine.incomplete)
        self.nuls.feed(data, opened=dispatch.opened, plain=self.formats.plain)
        self._pieces.learn(len(data), engine.frames - before)
        done = self._run(perf_counter() + TURN_S)
        self._find_wishes(data, done)
        self._end_turn(done)
        return done and not self.held and not self._lost

    def _run(self, until: float) -> bool:
        """Let the links process what has arrived, until this time. Returns True if nothing is left."""
        dispatch = self.dispatch
        assert dispatch is not None
        opened = dispatch.opened
        done = dispatch.run(until)
        if dispatch.opened and not opened:
            self._service.on_open(self._channel)
            self._tick_again()  # the client's idle timeout counts from its open, not from the next tick
        return done

    def _end_turn(self, done: bool) -> None:
        """Answer the client's requests before more is read.

        If work is left, pause reading and continue in a later loop iteration.
        """
        dispatch = self.dispatch
        assert dispatch is not None
        if not done:
            self.formats.hold()
            self.pause(Pause.TURN)
            producers = dispatch.producers
            # A batch that has begun ends before others begin. Otherwise `resume` continues, when there is
            # space.
            if producers.taking or not (self.held and producers.behind):
                self._service.backlog.add(self, first=producers.taking)
        else:
            self.formats.release()
            self.formats.prune()
            if self._wishes:
                self._grant_wishes()
        self.flush()
        if self._stalled:
            self._unstall()

    def work(self) -> bool:
        """Continue with what has arrived. See `turns.Worker`."""
        if self._lost or self._engine is None or self.dispatch is None:
            return False
        until = self._service.iteration.share_ends_s()
        done = self._run(until)
        if done:
            # Frames of the block were seen in an earlier iteration: the next block is compared from here on.
            self._other_frames = self._engine.frames - self.dispatch.producers.messages
            if not self._pieces.waiting:
                self.resume(Pause.TURN)
        self._end_turn(done)
        if done and self._pieces.waiting and not self.held:
            self._take(self._pieces.take_all(), until, waited=True)
        return False  # `_end_turn` has added this connection again if work is left

    def _find_wishes(self, block: memoryview | bytes, done: bool) -> None:
        """Find the flows that Proton does not answer.

        Those that ask for an answer (AMQP 2.7.4), and those with too much credit.
        """
        engine, dispatch = self._engine, self.dispatch
        assert engine is not None
        assert dispatch is not None
        others, self._other_frames = self._other_frames, engine.frames - dispatch.producers.messages
        # If the block had one frame per message, all of them were transfers: no flow frame ended here.
        if self.formats.transfers or (done and self._other_frames == others):
            self._echoes.skip(bytes(block[-FLOW_SIZE_MAX:]))
        else:
            self._wishes += self._echoes.feed(bytes(block))

    def _grant_wishes(self) -> None:
        assert self.dispatch is not None
        wishes, self._wishes = self._wishes, []
        if any(wish.excess for wish in wishes):
            self.dispatch.refuse_excess()
        if self._flows is not None and any(wish.echo for wish in wishes):
            self._flows.echo(self.dispatch.links.values())

    def _admitted(self, login: Login, leftover: bytes) -> None:
        """Start AMQP: the SASL layer has identified the client.

        `leftover` are the bytes that followed the layer.
        """
        limits = self._service.limits
        self.user, self.user_groups, self.expires_ms = login.user, login.groups, login.expires_ms
        self.mechanism, self.account = login.mechanism, self._service.quotas.of(login.user)
        self._engine = Engine(
            serving=True,
            frame_bytes_max=limits.frame_bytes,
            channels_max=limits.sessions,
            idle_timeout_ms=limits.idle_timeout_ms,
        )
        self._flows = Flows(self._engine)
        self.dispatch = Dispatch(self._service, self, self._engine, self._channel.peer)
        self._take(memoryview(leftover), self._service.iteration.ends_s(), waited=True)

    # -- bytes out

    def unsent(self) -> int:
        """How many bytes wait to be sent, outside of Proton."""
        return self._channel.pending() + (0 if self._engine is None else self._engine.held)

    def blocked(self) -> bool:
        """Whether the bytes that are waiting to be sent reach `limits.connection_pending_bytes`."""
        return self.unsent() > self._service.limits.connection_pending_bytes

    def flush(self) -> None:
        """Write what Proton has to send, unless the client does not read."""
        engine = self._engine
        if engine is None or self._lost:
            return
        # What Proton has already handed out must be written, even if the client does not read.
        while engine.held or not self.blocked():
            data = engine.pull()
            if not data and self._flows is not None:
                # Only when Proton has nothing left: the flows must follow the deliveries that they count.
                data = self._flows.write()
            if not data:
                if engine.finished:
                    self._channel.close()
                elif self._without_room:
                    self._make_room()
                return
            self._channel.write(data)

    def drained(self) -> None:
        """Continue: the channel's buffer has space again."""
        self.flush()
        self._unstall()

    def stall(self, link: Pumped) -> None:
        """Pump this link again after the client has sent something."""
        self._stalled[link] = None

    def await_room(self, link: Pumped) -> None:
        """Pump this link again after earlier output was sent."""
        self._without_room[link] = None

    def _make_room(self) -> None:
        """Pump the links that waited for space.

        Proton has written all that the client's session windows allow.
        """
        without_room, self._without_room = self._without_room, {}
        for link in without_room:
            if not link.alive:
                continue
            if sessions.outgoing_bytes(link.session) > SESSION_BYTES_MAX:
                self._without_room[link] = None  # waits until the client opens the window of the session
            else:
                self._service.pump_later(link)

    # The settlements or credit that a link waits for can only come with new bytes, or with a tick.
    def _unstall(self) -> None:
        stalled, self._stalled = self._stalled, {}
        for link in stalled:
            self._service.pump_later(link)

    @property
    def paused(self) -> bool:
        """Whether the node has paused reading from this client."""
        return bool(self.pauses)

    @property
    def held(self) -> bool:
        """Whether received bytes must wait: for the disk, for the user's quota, or for a new log."""
        return not self.pauses.isdisjoint(_HOLDING)

    def pause(self, reason: Pause) -> None:
        """Stop reading from this client until no reason is left."""
        self.pauses.add(reason)
        self._channel.pause_reading()

    def resume(self, reason: Pause) -> None:
        """Remove this reason for the pause."""
        self.pauses.discard(reason)
        if self._lost:
            return
        if not self.pauses:
            self._channel.resume_reading()
        elif Pause.TURN in self.pauses and not self.held:
            self._service.backlog.add(self)

    def write_formats(self) -> None:
        """Enable message-formats other than 0 for the following deliveries."""
        if self._engine is not None:
            self._engine.write_formats()

    def owe_flow(self, link: OutgoingLink[Any]) -> None:
        """Send the state of this link: the client waits for it (AMQP 2.6.7, 2.7.4)."""
        if self._flows is not None:
            self._flows.owe(link)

    def links_changed(self) -> None:
        """Look at the links again: one needs another kind of service than before."""
        if self.dispatch is not None:
            self.dispatch.watch()

    def reply_link(self, address: str | None) -> ReplyLink | None:
        """Return the link of this connection that carries answers to this address, or None.

        Without an address: the only reply link, if there is exactly one.
        """
        return None if self.dispatch is None else reply_link(self.dispatch.links.values(), address)

    # -- its life

    @property
    def identity(self) -> Identity:
        """The user and groups to which access rules apply."""
        return Identity(self.user, self.user_groups)

    @property
    def name(self) -> str:
        """The client's address, for log lines."""
        return self._channel.peer

    @property
    def owner(self) -> "AmqpConnection":
        """This connection. See `turns.Worker`."""
        return self

    @property
    def channel(self) -> ByteChannel:
        """The byte stream to the client."""
        return self._channel

    @property
    def admitted(self) -> bool:
        """Whether the client has passed the SASL layer."""
        return self._engine is not None

    def find_links(self, wanted: Callable[[AnyLink], bool]) -> list[AnyLink]:
        """Return the links for which `wanted` is true."""
        return (
            [] if self.dispatch is None else [link for link in self.dispatch.links.values() if wanted(link)]
        )

    def tick(self, now_ms: int) -> None:
        """Send heartbeats, and enforce the time limits for open, tokens and silence."""
        engine, dispatch = self._engine, self.dispatch
        if (dispatch is None or not dispatch.opened) and now_ms > self._open_before_ms:
            self._service.warn("open_timeout", peer=self._channel.peer)
            self._channel.abort()
            return
        if self.expires_ms is not None and self._service.now_ms() >= self.expires_ms:
            self.expires_ms = None
            self.shut(PeerError(names.UNAUTHORIZED_ACCESS, "the token expired"))
            return
        if engine is not None and dispatch is not None:
            if self._is_silent(now_ms):
                self.shut(
                    PeerError(
                        names.RESOURCE_LIMIT_EXCEEDED,
                        f"the node received nothing for {self._service.limits.idle_timeout_ms} ms",
                    )
                )
                return
            if now_ms >= dispatch.traffic.due_ms:
                dispatch.traffic.sample(dispatch.links.values(), now_ms)
            deadline_ms = engine.tick(now_ms)
            if Pause.TURN not in self.pauses:
                self._end_turn(dispatch.run(perf_counter() + TURN_S))
            self._unstall()
            self.flush()
            if (
                # The client wants heartbeats more often than the service ticks.
                0 < deadline_ms - now_ms < TICK_S * 1000
            ):
                self._service.later(deadline_ms - now_ms, self._tick_again)

    def _is_silent(self, now_ms: int) -> bool:
        """Whether the client sent nothing for the idle timeout.

        Proton cannot check this, because it does not know when the node has paused reading.
        """
        if self._reads != self._reads_at_tick or self.pauses or not self._heard_ms:
            self._reads_at_tick, self._heard_ms = self._reads, now_ms
        return now_ms - self._heard_ms >= self._service.limits.idle_timeout_ms

    def _tick_again(self) -> None:
        if not self._lost:
            self.tick(self._service.monotonic_ms())

    def shut(self, error: PeerError) -> None:
        """Close the connection with this error.

        The links are not closed one by one: a detach with `closed` ends a link for good, and a client that
        reconnects would not attach it again.
        """
        if self._engine is not None and self.dispatch is not None:
            # First the links: the node forgets them, and the effects below concern other connections.
            self.dispatch.lost()
            self._engine.close(error)
            self._service.effects.soon()
            self.flush()
        self._security.end()
        self._channel.close()

    def cut(self, reason: str) -> None:
        """End the connection at once, without a close frame. Unsent data is dropped."""
        if not self._lost:
            self._service.warn("connection_cut", peer=self._channel.peer, reason=reason)
            self._channel.abort()

    def lost(self) -> None:
        """Free everything: the channel has ended. The links end before Proton's memory is freed."""
        self._lost = True
        self._pieces.clear()
        self._service.connections.pop(self, None)
        if self.dispatch is not None:
            self.dispatch.lost()
        if self._engine is not None:
            self._engine.free()
            self._engine = None
        self._security.end()
        self._service.effects.carry_out()  # last, so that no effect finds a link of this connection
        # Without references in a circle, the memory is free at once.
        self.dispatch = self._flows = None
