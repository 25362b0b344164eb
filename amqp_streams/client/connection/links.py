"""Transfers and dispositions of one link, on Proton's C functions.

Law: a raw pointer is used only while its connection exists. Each link knows this (`alive`), and a link that
is not alive does nothing. Received deliveries stay in Proton, within the session's window, until they are
taken: this is the backpressure.
"""

import sys
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from amqp_streams import names
from amqp_streams.client.connection.formats import LinkFormats
from amqp_streams.client.errors import EndpointError, RejectedError, ReleasedError
from amqp_streams.client.options import Outcome
from amqp_streams.proton import links, outcomes, sending, sessions, termini
from amqp_streams.proton.conditions import read_condition
from amqp_streams.proton.pointers import Pointer
from amqp_streams.proton.receiving import Arrivals, receive
from amqp_streams.proton.sending import Sendable
from amqp_streams.proton.values import read_map, read_symbols

Delivery: TypeAlias = Pointer
"""A `pn_delivery_t *`: opaque, and valid only while its link is alive."""


SEND_BUFFER_BYTES_MAX: Final = 1 << 20
"""Unsent bytes of a session from which on `send` accepts no more: enough to keep a socket busy for some
milliseconds.
"""
UNREAD_BYTES_MAX: Final = 64 << 20
"""Bytes of unread messages of all receiving links of a connection, estimated from the last message sizes."""
SET_ASIDE_BYTES_MAX: Final = 64 << 20
"""Bytes of unread messages that one connection moves out of the windows of shared sessions."""
SIZE_GUESS: Final = 4096
"""The assumed size of a message in bytes before the first one has arrived."""

_SET_ASIDE_STEP: Final = 64


_ACCEPTED: Final = outcomes.ACCEPTED
_STATES: Final = {
    Outcome.ACCEPTED: outcomes.ACCEPTED,
    Outcome.REJECTED: outcomes.REJECTED,
    Outcome.RELEASED: outcomes.RELEASED,
    Outcome.MODIFIED: outcomes.MODIFIED,
}


class Unread:
    """The memory for unread messages, shared by the receiving links of one connection.

    Each link has an equal share. Sizes are known only after messages arrive. If they grow suddenly, the
    window of the session and SET_ASIDE_BYTES_MAX are the limits.
    """

    def __init__(self) -> None:
        self.links = 0
        self.set_aside = 0

    def messages(self, size: int) -> int:
        """Return how many messages of `size` bytes one link may have unread or in flight; at least one."""
        # At least one message, however large: otherwise a link could never receive.
        return max(1, UNREAD_BYTES_MAX // (max(1, self.links) * size))


class Session:
    """A session and its links."""

    def __init__(self, pointer: Pointer, unread: Unread) -> None:
        self.pointer: Final[Pointer] = pointer
        self.unread: Final = unread
        self.links: Final[set[Link]] = set()


class Link:
    """The common part of sending and receiving links. `name` is unique within its container and direction."""

    def __init__(self, name: str, pointer: Pointer, session: Session) -> None:
        self.name: Final = name
        self.session: Final = session
        self.pointer: Final[Pointer] = pointer
        self.alive = True
        self.attached = False
        self.detached = False

    @property
    def properties(self) -> dict[str, object]:
        """The link properties of the peer's attach, for example partition and epoch."""
        return read_map(links.peer_properties(self.pointer)) if self.alive else {}

    @property
    def credit(self) -> int:
        """How many messages may still be sent (sender), or arrive and be taken (receiver)."""
        return links.credit(self.pointer) if self.alive else 0

    def forget(self) -> None:
        """Stop using the pointer: the link or its connection has ended."""
        self.alive = False


class SenderLink(Link):
    """Sends messages and reports their outcomes."""

    def __init__(self, name: str, session: Session) -> None:
        super().__init__(name, links.new_sender(session.pointer, name), session)
        self._in_flight: dict[Delivery, Sendable] = {}
        self._count = 0

    @property
    def message_bytes_max(self) -> int:
        """The largest message that the peer accepts, in bytes; 0: no limit."""
        return links.peer_size_max(self.pointer) if self.alive else 0

    @property
    def in_flight(self) -> int:
        """How many events were sent and have no outcome yet."""
        return len(self._in_flight)

    def room(self) -> int:
        """How many messages may be sent now: the credit, or 0 while many bytes wait for the socket."""
        # Credit alone could fill the memory: the node may grant more than the socket takes.
        if not self.alive or sessions.outgoing_bytes(self.session.pointer) >= SEND_BUFFER_BYTES_MAX:
            return 0
        return links.credit(self.pointer)

    def send(self, events: Sequence[Sendable], *, formatted: bool = False) -> int:
        """Send the first of `events` and return how many were sent. The caller has checked `room`.

        It may be fewer than `room` if they are large. `formatted`: some may have a message-format other than
        0, and `ConnectionProtocol.write_formats` was called.
        """
        if not self.alive:
            return 0
        sent = sending.send_events(
            self.pointer,
            events,
            self._in_flight,
            number=self._count,
            bytes_max=SEND_BUFFER_BYTES_MAX,
            formatted=formatted,
        )
        self._count += sent
        return sent

    def outcome_of(
        self, delivery: Delivery, accepted: list[Sendable], refused: list[tuple[Sendable, EndpointError]]
    ) -> None:
        """Read a changed delivery.

        If it has an outcome, append its event to one of the lists and settle it.
        """
        state = outcomes.peer_state(delivery)
        # Not a final outcome: the peer may change the state until it settles.
        if state != _ACCEPTED and state not in _REFUSALS and not outcomes.settled_by_peer(delivery):
            return
        event = self._in_flight.pop(delivery, None)
        # The peer changed a delivery that has its outcome already.
        if event is None:
            return
        if state == _ACCEPTED:
            accepted.append(event)
        else:
            refused.append((event, _refusal(delivery, state)))
        # Last: Proton frees the delivery.
        outcomes.settle(delivery)

    def forget(self) -> None:
        """Also drop the deliveries that have no outcome."""
        super().forget()
        self._in_flight.clear()


class ReceiverLink(Link):
    """Receives messages within its credit. The caller allows more with `grant`."""

    def __init__(self, name: str, session: Session, message_bytes_max: int) -> None:
        super().__init__(name, links.new_receiver(session.pointer, name), session)
        self._message_bytes_max = message_bytes_max
        self._partial = bytearray()
        self.formats: LinkFormats | None = None
        self._size = SIZE_GUESS
        self._aside: deque[tuple[bytes, Delivery]] = deque()
        self._aside_aborted = 0
        self.oversized = False
        self.keeps_unread = False
        self.unread: list[bytes] = []
        """With `keeps_unread`: the messages that were not taken when the peer detached."""

    def formats_of(self, deliveries: Sequence[Delivery]) -> Sequence[int]:
        """Return the message-formats of taken, unsettled deliveries; empty if all are 0.

        Ask once for each delivery.
        """
        return self.formats.pop(deliveries) if self.formats is not None and self.alive else ()

    @property
    def filters(self) -> frozenset[str]:
        """Names of the filters that the peer has put in force (AMQP 1.0 core 3.5.3)."""
        return frozenset(read_map(termini.peer_source(self.pointer).filters)) if self.alive else frozenset()

    @property
    def capabilities(self) -> frozenset[str]:
        """The capabilities of the peer's source (AMQP 1.0 core 3.5.3)."""
        return (
            frozenset(read_symbols(termini.peer_source(self.pointer).capabilities))
            if self.alive
            else frozenset()
        )

    @property
    def durable(self) -> bool:
        """Whether the peer keeps the cursor of this source after the link ends.

        Spec: AMQP 1.0 core 3.5.5, 3.5.6.
        """
        return self.alive and termini.peer_source(self.pointer).outlives_link

    @property
    def credit(self) -> int:
        """How many messages may still arrive, or have arrived and were not taken."""
        return super().credit + len(self._aside)

    def room(self, most: int) -> int:
        """Return how much credit may be granted.

        At most `most` messages are then unread, and at most this link's share of the memory.
        """
        return min(most, self.session.unread.messages(self._size)) - self.credit

    def grant(self, credit: int) -> None:
        """Allow the peer to send `credit` more messages."""
        if self.alive and not self.detached and credit > 0:
            links.grant(self.pointer, credit)

    def drain(self, credit: int) -> None:
        """Allow the peer to send `credit` more messages, and drain.

        The peer returns unused credit at once (AMQP 1.0 core 2.6.7).
        """
        if self.alive and not self.detached:
            links.drain(self.pointer, credit)

    @property
    def draining(self) -> bool:
        """Whether a drain was sent and not answered yet."""
        return self.alive and links.is_draining(self.pointer)

    def take_drained(self) -> int:
        """Return the credit that the peer returned since the last call, because it had nothing to send."""
        return links.take_drained(self.pointer) if self.alive else 0

    @property
    def window_full(self) -> bool:
        """Whether too many deliveries are unsettled.

        The node then sends nothing more until some are settled.
        """
        most = links.connection_properties(self.pointer).get(names.UNSETTLED_MAX)
        return isinstance(most, int) and links.unsettled(self.pointer) >= most

    def take(self, count_max: int) -> tuple[list[bytes], Sequence[Delivery], int]:
        """Return complete messages, at most `count_max`, their deliveries, and how many deliveries were
        aborted.

        An aborted delivery also uses one credit.
        """
        # In the order of arrival: what was set aside is older than what is in the window.
        if self._aside or self._aside_aborted:
            return self._take_aside(count_max)
        taken = self._take(count_max)
        if messages := taken.messages:
            size = sum(map(len, messages)) // len(messages)
            # The average of the last estimate and the last messages, so that one large message changes it
            # slowly.
            self._size = max(1, size, (self._size + size) // 2)
        return taken.messages, taken.deliveries, taken.aborted

    def set_aside(self) -> None:
        """Move unread messages out of the session's window.

        The other links of the session can then receive.
        """
        unread = self.session.unread
        # The limit is for the connection: a link that is not read must not use the memory of all.
        while self.alive and unread.set_aside < SET_ASIDE_BYTES_MAX:
            taken = self._take(_SET_ASIDE_STEP)
            self._aside.extend(zip(taken.messages, taken.deliveries, strict=True))
            self._aside_aborted += taken.aborted
            unread.set_aside += sum(map(len, taken.messages))
            if not taken.messages:
                return

    def _take_aside(self, count_max: int) -> tuple[list[bytes], Sequence[Delivery], int]:
        aside = self._aside
        taken = [aside.popleft() for _ in range(min(count_max, len(aside)))]
        self.session.unread.set_aside -= sum(len(message) for message, _ in taken)
        aborted, self._aside_aborted = self._aside_aborted, 0
        return [message for message, _ in taken], [delivery for _, delivery in taken], aborted

    def _take(self, count_max: int) -> Arrivals:
        if not self.alive:
            return Arrivals()
        arrivals = receive(self.pointer, self._partial, self._message_bytes_max, count_max)
        # The peer exceeded the announced size. The owner of the link closes it.
        if arrivals.oversized:
            self._partial.clear()
            self.oversized = True
        return arrivals

    def save_unread(self) -> None:
        """Keep the unread messages after a detach, if `keeps_unread` is set."""
        while self.keeps_unread and (messages := self.take(sys.maxsize)[0]):
            self.unread += messages

    def settle(self, deliveries: Iterable[Delivery], outcome: Outcome) -> None:
        """Settle deliveries of this link with `outcome`. Each may be settled once."""
        if not self.alive:
            return
        outcomes.give(deliveries, _STATES[outcome])

    def forget(self) -> None:
        """Also drop the messages that were not taken."""
        super().forget()
        if self.formats is not None:
            self.formats.forget()
        self._partial.clear()
        # Given back: other links of the connection share the limit.
        self.session.unread.set_aside -= sum(len(message) for message, _ in self._aside)
        self._aside.clear()


_REFUSALS: Final = frozenset({outcomes.REJECTED, outcomes.RELEASED, outcomes.MODIFIED})


def _refusal(delivery: Delivery, state: int) -> EndpointError:
    if state == outcomes.REJECTED:
        error = read_condition(outcomes.peer_condition(delivery), "rejected")
        # This condition is not about the event: the node has reached a limit, usually its disk space. So the
        # event is sent again.
        return (ReleasedError if error[0] == names.RESOURCE_LIMIT_EXCEEDED else RejectedError)(*error)
    if state == outcomes.MODIFIED:
        return ReleasedError("modified", "the peer did not store it (modified)")
    return ReleasedError("released", "the peer did not store it (released)")
