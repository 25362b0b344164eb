"""The base classes of links, and the interfaces that links need from the server and their connection.

Law: a link's pointers are used only while `alive`. A commit may end after its link: its outcomes are then
dropped, not sent (`tests/amqp_streams/server/test_commits_in_flight.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
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
from amqp_streams.server.links.turns import Iteration, Turns, Worker
from amqp_streams.server.links.unfinished import Unfinished
from amqp_streams.server.observing.audit import Audit
from amqp_streams.storage.ports import CommitDone, CommitQueue
from amqp_streams.streams.attach import Grant, Pending
from amqp_streams.streams.receipts import Part, Wait
from amqp_streams.wire.formats import Endpoint, FormatFinder
from amqp_streams.wire.nuls import NulFinder


class Pause(Enum):
    """Why the node does not read from a client."""

    DISK = auto()
    """Too many received bytes wait for the disk."""
    QUOTA = auto()
    """The user exceeded its quota of bytes."""
    LOG = auto()
    """A message waits for the creation of its log."""
    TURN = auto()
    """Processing the received bytes takes more than one loop iteration."""
    STOPPING = auto()


SESSION_BYTES_MAX: Final = 1 << 20
"""How many bytes Proton may hold for one session because the client's session window is closed. Beyond this,
links of the session stop sending.
"""

G_co = TypeVar("G_co", bound=Grant | Pending, covariant=True)


class Service(Protocol):
    """What links need from the server."""

    node: Node
    confirming: Confirming
    audit: Audit
    turns: Turns
    iteration: Iteration
    unfinished: Unfinished
    leases: "Leases | None"
    limits: Limits
    container_id: str
    offered: tuple[str, ...]
    properties: Mapping[str, object]

    @property
    def effects(self) -> "LinkEffects":
        """The attached links, and the node's effects on them."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""

    def monotonic_ms(self) -> int:
        """Milliseconds of a monotonic clock, for time limits."""

    def cursors_moved(self) -> None:
        """Note that cursors that outlive their links have moved: they are written soon."""

    def await_commit(self, link: "Committing", deliveries: Sequence[Pointer], wait: Wait) -> None:
        """Call `link.committed` after the commit that `wait` names has ended."""

    def stall(self, link: "Committing", queue: CommitQueue) -> None:
        """See `EventService.stall`."""

    def overloaded(self, link: "Committing") -> bool:
        """Return whether too many bytes wait for the disk.

        If so, grant no credit; `link.top_up` is called when there is space.
        """

    def pump_later(self, link: "Pumped") -> None:
        """Call `link.pump` in a later loop iteration. See `Pumps` for the order."""

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call `call` once, after this delay."""

    def warn(self, event: str, **fields: object) -> None:
        """Write a log line of level warning."""

    def note(self, event: str, **fields: object) -> None:
        """Write a log line of level info."""


class Owner(Protocol):
    """The connection of a link.

    `user`: the name that the client logged in as; None: anonymous. `user_groups`: the groups that the
    credentials name. `number`: identifies the connection within this process. `account`: usage and quotas of
    the user over all its connections. `formats`: the message-formats of received transfers. `nuls`: names
    that contain a NUL character, as Proton cuts them.
    """

    user: str | None
    user_groups: frozenset[str]
    number: int
    account: Account
    formats: FormatFinder
    nuls: NulFinder

    def blocked(self) -> bool:
        """Whether enough data is in flight to this client.

        The links are pumped again when it has been read.
        """

    def flush(self) -> None:
        """Write what the engine has to send."""

    def unsent(self) -> int:
        """How many bytes for the client wait in this process, outside of Proton."""

    @property
    def paused(self) -> bool:
        """Whether the node has paused reading from this peer."""

    @property
    def held(self) -> bool:
        """Whether received bytes must wait: for the disk, or for the user's quota."""

    def pause(self, reason: Pause) -> None:
        """Stop reading from this peer."""

    def resume(self, reason: Pause) -> None:
        """Remove this reason for the pause. Reading continues when no reason is left."""

    def write_formats(self) -> None:
        """Enable message-formats other than 0 for the following deliveries of this connection."""

    def owe_flow(self, link: "OutgoingLink[Any]") -> None:
        """Send the state of this link to the client, which asked for it and which Proton does not answer."""

    def stall(self, link: "Pumped") -> None:
        """Pump this link again after the peer has sent something."""

    def await_room(self, link: "Pumped") -> None:
        """Pump this link again after earlier output was sent."""

    def links_changed(self) -> None:
        """Note that a link of this connection needs another kind of service than before.

        For example, its `watched` has changed.
        """

    def cut(self, reason: str) -> None:
        """End the connection at once, without a close frame. Unsent data is dropped."""

    def reply_link(self, address: str | None) -> "Replier | None":
        """Return the link of this connection that carries answers to this address, or None.

        Without an address: the only reply link, if there is exactly one.
        """


class Leases(Protocol):
    """Watches the links that may send only for a time: see `node/attaching/homed.py`."""

    def wrote(self, link: Any) -> None:
        """This `ConsumerLink` has sent something: write it, and see whether the time was over."""


class LinkEffects(Protocol):
    """Which link belongs to which grant, and the node's effects on links."""

    def attached(self, link: "AnyLink") -> None:
        """Register a link: effects may concern it from now on."""

    def detached(self, link: "AnyLink", *, closed: bool = False) -> None:
        """Make the node forget a link that is gone, or that will send nothing more.

        A second call has no effect. `closed`: the client ended the link for good.
        """

    def unsubscribe(self, link: "AnyLink") -> None:
        """Make the node remove the cursor of a `KeptLink`, whose `ended` is called when that is durable."""

    def soon(self) -> None:
        """Carry out the node's effects at the end of this loop iteration."""

    def carry_out(self, by: Owner | None = None) -> None:
        """Carry out the node's effects now. `by`: the connection whose attach caused them."""


class Committing(Hashable, Protocol):
    """A link whose messages are stored in commits."""

    name: str
    owner: Owner

    def committed(self, deliveries: Sequence[Pointer], parts: Sequence[Part], done: CommitDone) -> None:
        """The commit that contains these deliveries has ended. See `Wait.parts`."""

    def top_up(self) -> None:
        """Grant credit, if there is space."""


class Requester(Worker, Hashable, Protocol):
    """A link that carries requests."""

    alive: bool
    closing: bool


class Replier(Protocol):
    """A link that carries answers."""

    def reserve(self, by: Requester) -> bool:
        """Reserve credit for the answer to one more request.

        Returns False if no credit is left; `by` is scheduled again when there is.
        """

    def post(self, by: Requester, message: bytes) -> None:
        """Send an answer on the reserved credit."""


class Pumped(Protocol):
    """A link that sends. `scheduled`: it will be pumped in a later loop iteration."""

    @property
    def near_end(self) -> bool:
        """Whether it has little to send, so that it need not wait for links that send much."""

    alive: bool
    name: str
    owner: Owner
    session: Pointer
    scheduled: bool

    def pump(self) -> None:
        """Send what can be sent now."""


class Link(Generic[G_co]):
    """One link.

    Proton owns `pointer`. `grant` is the node's answer to the attach and belongs to this link. `events` and
    `bytes`: what it has appended or sent, counted once for each batch or run.
    """

    __slots__ = (
        "alive",
        "bytes",
        "closing",
        "events",
        "grant",
        "name",
        "owner",
        "pointer",
        "service",
        "session",
    )

    def __init__(self, service: Service, owner: Owner, pointer: Pointer, name: str, grant: G_co) -> None:
        self.service = service
        self.owner = owner
        self.pointer = pointer
        self.session: Pointer = links.session(pointer)
        self.name = name
        self.grant = grant
        self.alive = True
        self.closing = False
        self.events = self.bytes = 0

    def close(self, error: PeerError | None = None) -> None:
        """Detach with `closed` and the reason. Transfers that still arrive are dropped."""
        if self.alive and not self.closing:
            self.closing = True
            links.close(self.pointer, error)

    def evict(self, error: PeerError, by: Owner | None) -> None:  # noqa: ARG002  subclasses use it
        """Close because the node has taken the link away. The node has already forgotten the grant.

        `by`: the connection whose attach caused this.
        """
        self.close(error)


class OutgoingLink(Link[G_co], ABC):
    """A link that this node sends on.

    `handle`: the node's handle in the session; None: not known. `delivery_count`: as in AMQP 2.6.7.
    """

    __slots__ = ("delivery_count", "handle")

    def __init__(self, service: Service, owner: Owner, pointer: Pointer, name: str, grant: G_co) -> None:
        super().__init__(service, owner, pointer, name, grant)
        self.handle: int | None = None
        self.delivery_count = 0

    @property
    def near_end(self) -> bool:
        """See `Pumped.near_end`."""
        return True

    @abstractmethod
    def pump(self) -> None:
        """Send what credit allows."""

    def clogged(self) -> bool:
        """Whether earlier output still waits for the client to read it."""
        return sessions.outgoing_bytes(self.session) > SESSION_BYTES_MAX or self.owner.blocked()

    def answer_drain(self) -> None:
        """If the client drains, use its credit up: nothing more can be sent now. Spec: AMQP 2.6.7."""
        if links.wants_drain(self.pointer):
            self.delivery_count += links.take_drained(self.pointer)


class IncomingLink(Link[G_co]):
    """A link that receives messages of at most `size_max` bytes.

    `partial`: the bytes of a message that is not complete yet.
    """

    __slots__ = ("endpoint", "partial", "size_max")

    def __init__(
        self, service: Service, owner: Owner, pointer: Pointer, name: str, grant: G_co, *, size_max: int
    ) -> None:
        super().__init__(service, owner, pointer, name, grant)
        self.partial = bytearray()
        self.size_max = size_max
        self.endpoint: Endpoint | None = None
        """How the client names the link on the connection (channel and handle); None: not known."""

    def arrived(self, *, one: bool = False) -> receiving.Arrivals:
        """Return the complete messages that have arrived; with `one`, at most one of them.

        Closes the link if a message exceeds `size_max`.
        """
        # The client may not have seen the detach yet, so transfers may still arrive.
        if self.closing:
            receiving.discard(self.pointer)
            return receiving.Arrivals()
        held = len(self.partial)
        most = (1,) if one else ()
        arrivals = receiving.receive(self.pointer, self.partial, self.size_max, *most)
        if one and arrivals.deliveries:
            number = self.owner.formats.take_first(self.endpoint, receiving.tag_of(arrivals.deliveries[0]))
            arrivals.formats = (number,) if number else ()
        # After an aborted delivery, complete ones may follow, whose formats must stay.
        elif self.owner.formats.busy and not (one and arrivals.aborted):
            arrivals.deliveries = list(arrivals.deliveries)
            arrivals.formats = receiving.formats_of(
                self.pointer, arrivals.deliveries, self.owner.formats, self.endpoint
            )
        size = len(self.partial)
        arrivals.kept = size - held
        # An end of a message came first: the bytes that are held now belong to another message, whose time
        # limit begins anew.
        if held and (arrivals.deliveries or arrivals.aborted):
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
        # A new object: Proton's part may still refer to the old one.
        if self.partial:
            self.partial = bytearray()
            self.service.unfinished.holds(self, 0)


AnyLink = Link[Any]
