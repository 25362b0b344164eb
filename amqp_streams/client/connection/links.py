"""Transfers and dispositions of one link, on the engine's functions.

One law: a raw pointer is used only while its connection lives. Every link knows whether it does (`alive`),
and a link that does not answers with nothing. Deliveries stay in Proton, under the session's window, until
they are taken: that is the back-pressure.
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
"""A `pn_delivery_t *`: opaque, and only as good as its link is alive."""


SEND_BUFFER_BYTES_MAX: Final = 1 << 20
"""Bytes that a session keeps for the socket before `send` takes no more: enough to keep a socket busy for
some milliseconds.
"""
UNREAD_BYTES_MAX: Final = 64 << 20
"""Unread messages of all receiving links of a connection, as far as their sizes are known."""
SET_ASIDE_BYTES_MAX: Final = 64 << 20
"""Unread messages that are moved out of the windows of shared sessions, of one connection."""
SIZE_GUESS: Final = 4096
"""Bytes of a message, before the first one has come."""

_SET_ASIDE_STEP: Final = 64


_ACCEPTED: Final = outcomes.ACCEPTED
_STATES: Final = {
    Outcome.ACCEPTED: outcomes.ACCEPTED,
    Outcome.REJECTED: outcomes.REJECTED,
    Outcome.RELEASED: outcomes.RELEASED,
    Outcome.MODIFIED: outcomes.MODIFIED,
}


class Unread:
    """What the receiving links of one connection may hold unread, together.

    Each link has an equal share. The size of messages is not known before they come: links that are far
    beyond their share when sizes jump are bounded by the window of their session, and what is set aside by
    SET_ASIDE_BYTES_MAX.
    """

    def __init__(self) -> None:
        self.links = 0
        self.set_aside = 0

    def messages(self, size: int) -> int:
        """How many messages of this size one link may have unread or on their way; at least one."""
        return max(1, UNREAD_BYTES_MAX // (max(1, self.links) * size))


class Session:
    """A session and its links."""

    def __init__(self, pointer: Pointer, unread: Unread) -> None:
        self.pointer: Final[Pointer] = pointer
        self.unread: Final = unread
        self.links: Final[set[Link]] = set()


class Link:
    """What both directions share. `name` is unique in its container and direction."""

    def __init__(self, name: str, pointer: Pointer, session: Session) -> None:
        self.name: Final = name
        self.session: Final = session
        self.pointer: Final[Pointer] = pointer
        self.alive = True
        self.attached = False
        self.detached = False

    @property
    def properties(self) -> dict[str, object]:
        """The link properties that the peer answered with: partition, epoch."""
        return read_map(links.peer_properties(self.pointer)) if self.alive else {}

    @property
    def credit(self) -> int:
        """Messages that may still be sent (sender), or come and be taken (receiver)."""
        return links.credit(self.pointer) if self.alive else 0

    def forget(self) -> None:
        """The link or its connection is gone: touch no pointer any more."""
        self.alive = False


class SenderLink(Link):
    """Sends messages and tells their outcomes."""

    def __init__(self, name: str, session: Session) -> None:
        super().__init__(name, links.new_sender(session.pointer, name), session)
        self._in_flight: dict[Delivery, Sendable] = {}
        self._count = 0

    @property
    def message_bytes_max(self) -> int:
        """The largest message the peer takes; 0: it names no limit."""
        return links.peer_size_max(self.pointer) if self.alive else 0

    @property
    def in_flight(self) -> int:
        """Events sent whose outcome is not known."""
        return len(self._in_flight)

    def room(self) -> int:
        """How many messages may be sent now: the peer's credit, nothing while much is waiting for the socket."""
        if not self.alive or sessions.outgoing_bytes(self.session.pointer) >= SEND_BUFFER_BYTES_MAX:
            return 0
        return links.credit(self.pointer)

    def send(self, events: Sequence[Sendable], *, formatted: bool = False) -> int:
        """Send the first of `events`, for which `room` must have been asked; returns how many (fewer where
        they are large).

        `formatted`: some may have a message-format that is not 0, and `ConnectionProtocol.write_formats` was
        called.
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
        """Look at a delivery that changed; if its outcome is there, add its event to one of the lists."""
        state = outcomes.peer_state(delivery)
        if state != _ACCEPTED and state not in _REFUSALS and not outcomes.settled_by_peer(delivery):
            return
        event = self._in_flight.pop(delivery, None)
        if event is None:
            return
        if state == _ACCEPTED:
            accepted.append(event)
        else:
            refused.append((event, _refusal(delivery, state)))
        outcomes.settle(delivery)

    def forget(self) -> None:
        """The same, for the deliveries too."""
        super().forget()
        self._in_flight.clear()


class ReceiverLink(Link):
    """Receives messages under a credit window; the caller says by `grant` how much more may come."""

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
        """What had come and was not taken when the peer detached, for those that keep it."""

    def formats_of(self, deliveries: Sequence[Delivery]) -> Sequence[int]:
        """The message-formats of deliveries that were taken and are not settled, asked once for each; empty:
        they are all 0.
        """
        return self.formats.pop(deliveries) if self.formats is not None and self.alive else ()

    @property
    def filters(self) -> frozenset[str]:
        """Names of the filters that the peer says are in force (AMQP 1.0 core 3.5.3)."""
        return frozenset(read_map(termini.peer_source(self.pointer).filters)) if self.alive else frozenset()

    @property
    def capabilities(self) -> frozenset[str]:
        """What the peer says its source is capable of (AMQP 3.5.3)."""
        return (
            frozenset(read_symbols(termini.peer_source(self.pointer).capabilities))
            if self.alive
            else frozenset()
        )

    @property
    def durable(self) -> bool:
        """The peer keeps the place of this source when the link is gone (AMQP 3.5.5, 3.5.6)."""
        return self.alive and termini.peer_source(self.pointer).outlives_link

    @property
    def credit(self) -> int:
        """Messages that may still come, or have come and were not taken."""
        return super().credit + len(self._aside)

    def room(self, most: int) -> int:
        """How much credit may be granted so that at most `most` messages, and no more than this link's share
        of memory, are unread.
        """
        return min(most, self.session.unread.messages(self._size)) - self.credit

    def grant(self, credit: int) -> None:
        """Let the peer send `credit` more."""
        if self.alive and not self.detached and credit > 0:
            links.grant(self.pointer, credit)

    def drain(self, credit: int) -> None:
        """Let the peer send `credit` more, and give back at once what it has nothing for (AMQP 2.6.7)."""
        if self.alive and not self.detached:
            links.drain(self.pointer, credit)

    @property
    def draining(self) -> bool:
        """A drain was asked for and not answered yet."""
        return self.alive and links.is_draining(self.pointer)

    def take_drained(self) -> int:
        """Credit that the peer gave back since this was last asked for: it had nothing to send for it."""
        return links.take_drained(self.pointer) if self.alive else 0

    @property
    def window_full(self) -> bool:
        """So much is unsettled that the node sends nothing more before some of it is settled."""
        most = links.connection_properties(self.pointer).get(names.UNSETTLED_MAX)
        return isinstance(most, int) and links.unsettled(self.pointer) >= most

    def take(self, count_max: int) -> tuple[list[bytes], list[Delivery], int]:
        """Complete messages that have come, at most `count_max`, their deliveries, and how many credits went
        to aborted ones.
        """
        if self._aside or self._aside_aborted:
            return self._take_aside(count_max)
        taken = self._take(count_max)
        if messages := taken.messages:
            size = sum(map(len, messages)) // len(messages)
            self._size = max(1, size, (self._size + size) // 2)
        return taken.messages, taken.deliveries, taken.aborted

    def set_aside(self) -> None:
        """Move unread messages out of the session's window, as far as there is memory for that."""
        unread = self.session.unread
        while self.alive and unread.set_aside < SET_ASIDE_BYTES_MAX:
            taken = self._take(_SET_ASIDE_STEP)
            self._aside.extend(zip(taken.messages, taken.deliveries, strict=True))
            self._aside_aborted += taken.aborted
            unread.set_aside += sum(map(len, taken.messages))
            if not taken.messages:
                return

    def _take_aside(self, count_max: int) -> tuple[list[bytes], list[Delivery], int]:
        aside = self._aside
        taken = [aside.popleft() for _ in range(min(count_max, len(aside)))]
        self.session.unread.set_aside -= sum(len(message) for message, _ in taken)
        aborted, self._aside_aborted = self._aside_aborted, 0
        return [message for message, _ in taken], [delivery for _, delivery in taken], aborted

    def _take(self, count_max: int) -> Arrivals:
        if not self.alive:
            return Arrivals()
        arrivals = receive(self.pointer, self._partial, self._message_bytes_max, count_max)
        if arrivals.oversized:
            self._partial.clear()
            self.oversized = True
        return arrivals

    def save_unread(self) -> None:
        """The peer has detached: take what is here, if that is wanted."""
        while self.keeps_unread and (messages := self.take(sys.maxsize)[0]):
            self.unread += messages

    def settle(self, deliveries: Iterable[Delivery], outcome: Outcome) -> None:
        """Say what became of deliveries taken from this link and not settled before."""
        if not self.alive:
            return
        outcomes.give(deliveries, _STATES[outcome])

    def forget(self) -> None:
        """The same, and what was not taken."""
        super().forget()
        if self.formats is not None:
            self.formats.forget()
        self._partial.clear()
        self.session.unread.set_aside -= sum(len(message) for message, _ in self._aside)
        self._aside.clear()


_REFUSALS: Final = frozenset({outcomes.REJECTED, outcomes.RELEASED, outcomes.MODIFIED})


def _refusal(delivery: Delivery, state: int) -> EndpointError:
    if state == outcomes.REJECTED:
        error = read_condition(outcomes.peer_condition(delivery), "rejected")
        # With this one nothing is wrong with the event: the node is short of something, space mostly.
        return (ReleasedError if error[0] == names.RESOURCE_LIMIT_EXCEEDED else RejectedError)(*error)
    if state == outcomes.MODIFIED:
        return ReleasedError("modified", "the peer did not store it (modified)")
    return ReleasedError("released", "the peer did not store it (released)")
