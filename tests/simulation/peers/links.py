"""The links of a simulated client, as the client sees them, and the credit that each of them has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from amqp_streams.wire.types import Described, UInt, Value
from tests.simulation.peers.frames import UINT, disposition_frame, frame_of

if TYPE_CHECKING:
    from tests.simulation.peers.connection import Connection


def after(number: int, count: int = 1) -> int:
    """A serial number so much later (RFC 1982)."""
    return (number + count) & UINT


def distance(first: int, second: int) -> int:
    """How far `second` is behind `first`; negative: before it."""
    return ((second - first + (1 << 31)) & UINT) - (1 << 31)


@dataclass(eq=False)
class Link:
    """One link as its client sees it."""

    connection: "Connection"
    name: str
    handle: int
    attached: Callable[[Mapping[str, Value]], None]
    ended: Callable[[str | None], None]
    """Called once, with the condition of the node's detach; None: the connection or the client's own detach
    ended the link.
    """
    answered: bool = False
    refused: bool = False
    alive: bool = True
    detaching: bool = False

    def end(self, condition: str | None) -> None:
        if self.alive:
            self.alive = False
            self.ended(condition)

    def detach(self, *, closed: bool) -> None:
        """End it from this side."""
        if self.alive and not self.detaching:
            self.detaching = True
            self.connection.write(frame_of("detach", handle=UInt(self.handle), closed=closed))


@dataclass(eq=False)
class Sender(Link):
    """A link that this client sends on."""

    credited: Callable[[], None] = lambda: None
    outcome: Callable[[int, str | None, str | None], None] = lambda number, state, condition: None
    """Called with the number of a delivery, its outcome (None: settled without one) and its condition."""
    count: int = 0
    credit: int = 0
    unsettled: dict[int, None] = field(default_factory=dict)
    granted: int = 0
    """The total of all received credit."""
    second: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)
    """Of the error of the last rejection."""

    def flow(self, fields: Mapping[str, Any]) -> None:
        count = fields["delivery-count"]
        base = self.count if count is None else int(count)
        credit = distance(self.count, after(base, int(fields["link-credit"])))
        assert credit >= 0 or credit <= 0
        if credit > self.credit:
            self.granted += credit - self.credit
        self.credit = max(credit, 0)
        if self.credit:
            self.credited()

    def send(
        self, message: bytes, *, settled: bool = False, frame_bytes: int = 0, message_format: int = 0
    ) -> int:
        """Send a delivery in frames of at most so many bytes; its number. There must be credit."""
        number = self.begin()
        size = min(frame_bytes or self.connection.frame_bytes, self.connection.peer_frame_bytes - 64)
        at = 0
        while True:
            part = message[at : at + size]
            at += size
            more = at < len(message)
            self.connection.transfer(
                self, number, part, settled=settled, more=more, message_format=message_format
            )
            if not more:
                break
        self.complete(number, settled=settled)
        return number

    def begin(self) -> int:
        """Return the number of the next delivery, whose transfers the caller sends."""
        assert self.credit > 0
        self.credit -= 1
        self.count = after(self.count)
        return self.connection.next_delivery()

    def complete(self, number: int, *, settled: bool) -> None:
        """The last transfer of a delivery is sent."""
        if not settled:
            self.unsettled[number] = None
            self.connection.sent[number] = self


@dataclass(eq=False)
class Delivery:
    """A received delivery. `raw` is the message."""

    link: "Receiver"
    number: int
    raw: bytes
    settled: bool


@dataclass(eq=False)
class Receiver(Link):
    """A link that this client receives on."""

    delivered: Callable[[Delivery], None] = lambda delivery: None
    drained: Callable[[], None] = lambda: None
    settled_by_node: Callable[[int], None] = lambda number: None
    count: int = 0
    credit: int = 0
    draining: bool = False
    partial: bytearray = field(default_factory=bytearray)
    number: int | None = None
    first_settled: bool = False
    second: bool = False
    unsettled: dict[int, None] = field(default_factory=dict)
    echoes: int = 0
    """Flows that requested an answer, since the last received flow."""

    def grant(self, credit: int, *, drain: bool = False, echo: bool = False) -> None:
        """Set the credit, counted from the deliveries that have arrived."""
        if self.alive and not self.detaching:
            self.credit, self.draining = credit, drain
            self.echoes += echo
            self.connection.write_flow(self, drain=drain, echo=echo)

    def flow(self, fields: Mapping[str, Any]) -> None:
        """Read the state of the node's side. The node may not know credit that was granted in the
        meantime.
        """
        self.echoes = 0
        count = fields["delivery-count"]
        if count is None:
            return
        advanced = distance(self.count, int(count))
        assert advanced >= 0, f"the delivery-count of {self.name} fell by {-advanced}"
        assert advanced <= self.credit, f"{self.name}: {advanced} of {self.credit} credits came back"
        if self.draining and advanced + int(fields["link-credit"]) == self.credit:
            if int(fields["link-credit"]) == 0:
                self.count, self.credit, self.draining = int(count), 0, False
                self.drained()
        else:
            assert not advanced or self.draining, f"{self.name} gave back credit that was not drained"

    def transfer(self, fields: Mapping[str, Any], payload: bytes) -> None:
        if self.number is None:
            assert fields["delivery-id"] is not None, "the first transfer of a delivery has its id"
            assert self.credit > 0, f"a delivery on {self.name} without credit"
            self.credit -= 1
            self.count = after(self.count)
            self.number = int(fields["delivery-id"])
            self.connection.arrives(self.number)
            self.first_settled = False
        self.partial += payload
        self.first_settled = self.first_settled or fields["settled"] is True
        assert fields["aborted"] is not True, "the node aborts nothing"
        if fields["more"] is True:
            return
        number, self.number = self.number, None
        raw, self.partial = bytes(self.partial), bytearray()
        if not self.first_settled:
            self.unsettled[number] = None
            self.connection.came[number] = self
        self.delivered(Delivery(self, number, raw, self.first_settled))

    def settle(self, first: int, last: int, state: Described | None, *, settled: bool = True) -> None:
        """Send the outcomes of deliveries of this link."""
        if not self.alive:
            return
        if settled:
            number = first
            while distance(number, last) >= 0:
                self.unsettled.pop(number, None)
                self.connection.came.pop(number, None)
                number = after(number)
        self.connection.write(
            disposition_frame(receiver=True, first=first, last=last, settled=settled, state=state)
        )
