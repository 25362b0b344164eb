"""What the links of a connection have in common, and what they need around them.

Law: a link's pointers are used only while `alive`. A commit outlives the read that started it, so whatever
comes back for a link that is gone is dropped, not settled
(`tests/amqp_streams/server/test_commits_in_flight.py`).
"""

from collections.abc import Callable, Hashable
from enum import Enum, auto
from typing import Any, Final, Generic, Protocol, TypeVar

from amqp_streams import names
from amqp_streams.config import Limits
from amqp_streams.errors import PeerError
from amqp_streams.node import Node
from amqp_streams.proton import links, receiving, sessions
from amqp_streams.proton.pointers import Pointer
from amqp_streams.server.limits.quotas import Account
from amqp_streams.server.links.confirming import Confirming
from amqp_streams.server.links.turns import Turns, Worker
from amqp_streams.server.links.unfinished import Unfinished
from amqp_streams.server.observing.audit import Audit
from amqp_streams.storage.ports import CommitDone
from amqp_streams.streams.attach import Grant, Pending
from amqp_streams.streams.intake import Receipt
from amqp_streams.wire.formats import FormatFinder
from amqp_streams.wire.nuls import NulFinder


class Pause(Enum):
    """Why a node does not read from a peer."""

    DISK = auto()
    """Too much of what was read waits for the disk."""
    QUOTA = auto()
    """The user owes bytes of its quota."""
    TURN = auto()
    """What was read takes more than one loop iteration."""
    STOPPING = auto()


SESSION_BYTES_MAX: Final = 1 << 20
"""Handed to the engine on one session and not yet taken by the peer's session window."""

G_co = TypeVar("G_co", bound=Grant | Pending, covariant=True)


class Service(Protocol):
    """What links need from the server."""

    node: Node
    confirming: Confirming
    audit: Audit
    turns: Turns
    unfinished: Unfinished
    limits: Limits
    container_id: str

    @property
    def effects(self) -> "LinkEffects":
        """The existing links, and the node's effects on them."""

    def now_ms(self) -> int:
        """The wall clock."""

    def monotonic_ms(self) -> int:
        """A monotonic clock, for time limits."""

    def cursors_moved(self) -> None:
        """Cursors that outlive their links have moved: write them soon."""

    def await_commit(self, link: "Committing", deliveries: list[Pointer], receipt: Receipt) -> None:
        """Call `link.committed` after commit `receipt.sequence` has ended."""

    def overloaded(self, link: "Committing") -> bool:
        """Too many bytes wait for the disk: grant no credit now. `link.top_up` is called when there is
        space.
        """

    def pump_later(self, link: "Pumped") -> None:
        """Call `link.pump` in a later loop iteration."""

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call once, after this delay."""

    def warn(self, event: str, **fields: object) -> None:
        """Write a log line for operators."""

    def note(self, event: str, **fields: object) -> None:
        """Write a log line for diagnosis."""


class Owner(Protocol):
    """The connection of a link. `user`: who logged in, None: anonymous; `user_groups` as the credentials name
    them. `number`: its own.

    `account`: what its user has and may have, over all connections. `formats`: message-formats of the
    transfers that came. `nuls`: names with a NUL, as the engine cuts them.
    """

    user: str | None
    user_groups: frozenset[str]
    number: int
    account: Account
    formats: FormatFinder
    nuls: NulFinder

    def blocked(self) -> bool:
        """More than enough data is in flight to this peer. `drained` will pump its links again."""

    def flush(self) -> None:
        """Write what the engine has to send."""

    @property
    def paused(self) -> bool:
        """Whether the node has paused reading from this peer."""

    def pause(self, reason: Pause) -> None:
        """Stop reading from this peer."""

    def resume(self, reason: Pause) -> None:
        """This reason has ended: read again if no other reason is left."""

    def write_formats(self) -> None:
        """Deliveries of this connection may have a message-format that is not 0 from here on."""

    def owe_flow(self, link: "OutgoingLink[Any]") -> None:
        """Send the state of this link to the peer, which waits for it and gets it from nothing else."""

    def stall(self, link: "Pumped") -> None:
        """Pump this link again after the peer has sent something."""

    def await_room(self, link: "Pumped") -> None:
        """Pump this link again after earlier output was sent."""

    def links_changed(self) -> None:
        """A link of this connection needs another kind of service than before."""

    def cut(self, reason: str) -> None:
        """End the connection at once, without a close frame. Unsent data is dropped."""

    def reply_link(self, address: str | None) -> "Replier | None":
        """The link of this connection that carries answers to this address. Without an address: the only
        such link.
        """


class LinkEffects(Protocol):
    """The node's grants and their links, and the node's effects on them."""

    def attached(self, link: "AnyLink") -> None:
        """Register a link: effects may concern it."""

    def detached(self, link: "AnyLink", *, closed: bool = False) -> None:
        """A link is gone, or will send nothing more: the node forgets it. Twice is once."""

    def soon(self) -> None:
        """Carry out the node's effects at the end of this loop iteration."""

    def carry_out(self, by: Owner | None = None) -> None:
        """Carry out the node's effects now. `by`: the connection that attached."""


class Committing(Hashable, Protocol):
    """A link whose messages are stored in commits."""

    name: str
    owner: Owner

    def committed(self, deliveries: list[Pointer], receipt: Receipt, done: CommitDone) -> None:
        """The commit that contains these deliveries has ended."""

    def top_up(self) -> None:
        """Grant credit, if there is space."""


class Requester(Worker, Hashable, Protocol):
    """A link that carries requests."""

    alive: bool
    closing: bool


class Replier(Protocol):
    """A link that carries answers."""

    def reserve(self, by: Requester) -> bool:
        """Reserve credit for the answer to one more request. False: no credit is left, and `by` continues
        when there is.
        """

    def post(self, by: Requester, message: bytes) -> None:
        """Send an answer on the reserved credit."""


class Pumped(Protocol):
    """A link that sends. `scheduled`: it will be served in a later loop iteration."""

    alive: bool
    name: str
    owner: Owner
    session: Pointer
    scheduled: bool

    def pump(self) -> None:
        """Send what can be sent now."""


class Link(Generic[G_co]):
    """One link. `pointer` is borrowed from the engine;

    `grant` is what the node gave, and belongs to this link.
    """

    __slots__ = ("alive", "closing", "grant", "name", "owner", "pointer", "service", "session")

    def __init__(self, service: Service, owner: Owner, pointer: Pointer, name: str, grant: G_co) -> None:
        self.service = service
        self.owner = owner
        self.pointer = pointer
        self.session: Pointer = links.session(pointer)
        self.name = name
        self.grant = grant
        self.alive = True
        self.closing = False

    def close(self, error: PeerError | None = None) -> None:
        """Detach with `closed`, and with the reason. Transfers that still arrive are dropped."""
        if self.alive and not self.closing:
            self.closing = True
            links.close(self.pointer, error)

    def evict(self, error: PeerError, by: Owner | None) -> None:  # noqa: ARG002  consumers look at it
        """Close, for the node has taken the link away: it has forgotten it already.

        `by`: the connection that attached meanwhile.
        """
        self.close(error)


class OutgoingLink(Link[G_co]):
    """A link that this node sends on.

    `handle`: its own in its session, None: not known. `delivery_count` as in AMQP 2.6.7.
    """

    __slots__ = ("delivery_count", "handle")

    def __init__(self, service: Service, owner: Owner, pointer: Pointer, name: str, grant: G_co) -> None:
        super().__init__(service, owner, pointer, name, grant)
        self.handle: int | None = None
        self.delivery_count = 0

    def pump(self) -> None:
        """Send what credit allows."""
        raise NotImplementedError

    def clogged(self) -> bool:
        """Whether sent data waits for the peer to read it."""
        return sessions.outgoing_bytes(self.session) > SESSION_BYTES_MAX or self.owner.blocked()

    def answer_drain(self) -> None:
        """Nothing can be sent now: if the peer drains, return its credit. Spec: AMQP 2.6.7."""
        if links.wants_drain(self.pointer):
            self.delivery_count += links.take_drained(self.pointer)


class IncomingLink(Link[G_co]):
    """A link that takes messages of at most `size_max` bytes.

    `partial` holds what has arrived of one that is not complete.
    """

    __slots__ = ("endpoint", "partial", "size_max")

    def __init__(
        self, service: Service, owner: Owner, pointer: Pointer, name: str, grant: G_co, *, size_max: int
    ) -> None:
        super().__init__(service, owner, pointer, name, grant)
        self.partial = bytearray()
        self.size_max = size_max
        self.endpoint = owner.formats.find_link(name)
        """As its peer names it on the connection; None: that is not known."""

    def arrived(self) -> receiving.Arrivals:
        """Whole messages that have arrived; closes the link when there is too much of one that is not."""
        if self.closing:
            receiving.discard(self.pointer)
            return receiving.Arrivals()
        held = len(self.partial)
        arrivals = receiving.receive(self.pointer, self.partial, self.size_max)
        if self.owner.formats.busy:
            arrivals.formats = receiving.formats_of(
                self.pointer, arrivals.deliveries, self.owner.formats, self.endpoint
            )
        size = len(self.partial)
        arrivals.kept = size - held
        if held and (
            arrivals.deliveries or arrivals.aborted
        ):  # what is held is of another message than before
            self.service.unfinished.holds(self, 0)
            held = 0
        if size != held:
            self.service.unfinished.holds(self, size)
        if arrivals.oversized:
            description = f"a message is larger than the max-message-size of this link, {self.size_max} bytes"
            self.close(PeerError(names.LINK_MESSAGE_SIZE_EXCEEDED, description))
        return arrivals

    def close(self, error: PeerError | None = None) -> None:
        """Detach, and drop incomplete messages."""
        self.let_go()
        super().close(error)

    def let_go(self) -> None:
        """Drop the bytes of an incomplete message."""
        if self.partial:
            self.partial = bytearray()
            self.service.unfinished.holds(self, 0)


AnyLink = Link[Any]
