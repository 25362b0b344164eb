"""Transfers and dispositions of one link, straight on Proton's C functions: the wrapper classes cost ten times as much.

One law: a raw pointer is used only while its connection lives. Every link knows whether it does (`alive`), and a link that does not
answers with nothing. Deliveries stay in Proton, under the session's window, until they are taken: that is the back-pressure.
"""

import struct
import sys
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from cproton_ffi import ffi, lib

from amqp_streams import names
from amqp_streams.client.connection.octets import LinkFormats, LongTag
from amqp_streams.client.errors import EndpointError, RejectedError, ReleasedError
from amqp_streams.client.options import Outcome
from amqp_streams.proton.terms import read_condition, read_map, read_symbols

Delivery = Any
"""A `pn_delivery_t *`: opaque, and only as good as its link is alive."""


class Sendable(Protocol):
    """What a caller gives to send and gets back with its outcome."""

    @property
    def message(self) -> bytes:
        """The bytes of the AMQP message."""

    @property
    def message_format(self) -> int:
        """Its message-format (AMQP 2.7.5)."""


SEND_BUFFER_BYTES_MAX: Final = 1 << 20
"""Bytes that a session keeps for the socket before `send` takes no more: enough to keep a socket busy for some milliseconds."""
UNREAD_BYTES_MAX: Final = 64 << 20
"""Unread messages of all receiving links of a connection, as far as their sizes are known."""
SET_ASIDE_BYTES_MAX: Final = 64 << 20
"""Unread messages that are moved out of the windows of shared sessions, of one connection."""
SIZE_GUESS: Final = 4096
"""Bytes of a message, before the first one has come."""

_RECEIVE_BYTES: Final = 256 << 10
_SET_ASIDE_STEP: Final = 64
_write_tag = struct.Struct(">Q").pack_into


class _Scratch(threading.local):
    """Where received bytes land first; one a thread, because the C calls let other threads run meanwhile."""

    def __init__(self) -> None:
        self.buffer: Final = bytearray(_RECEIVE_BYTES)
        self.pointer: Final[Any] = ffi.from_buffer("char[]", self.buffer)
        self.view: Final = memoryview(self.buffer)


_scratch = _Scratch()

_ACCEPTED: Final = lib.PN_ACCEPTED
_STATES: Final = {
    Outcome.ACCEPTED: lib.PN_ACCEPTED,
    Outcome.REJECTED: lib.PN_REJECTED,
    Outcome.RELEASED: lib.PN_RELEASED,
    Outcome.MODIFIED: lib.PN_MODIFIED,
}


class Unread:
    """What the receiving links of one connection may hold unread, together.

    Each link has an equal share. The size of messages is not known before they come: links that are far beyond their share when sizes
    jump are bounded by the window of their session, and what is set aside by SET_ASIDE_BYTES_MAX.
    """

    def __init__(self) -> None:
        self.links = 0
        self.set_aside = 0

    def messages(self, size: int) -> int:
        """How many messages of this size one link may have unread or on their way; at least one."""
        return max(1, UNREAD_BYTES_MAX // (max(1, self.links) * size))


class Session:
    """A session and its links."""

    def __init__(self, proton_session: Any, unread: Unread) -> None:
        self.proton: Final = proton_session
        self.pointer: Final[Any] = proton_session._impl
        self.unread: Final = unread
        self.links: Final[set[Link]] = set()


class Link:
    """What both directions share. `proton_link` is Proton's wrapper, kept so that the pointers stay good."""

    def __init__(self, proton_link: Any, session: Session) -> None:
        self.proton_link: Final = proton_link
        self.session: Final = session
        self.pointer: Final[Any] = proton_link._impl
        self.alive = True
        self.attached = False
        self.detached = False

    @property
    def name(self) -> str:
        """The link's name, unique in its container and direction."""
        return str(self.proton_link.name)

    @property
    def properties(self) -> dict[str, object]:
        """The link properties that the peer answered with: partition, epoch."""
        return read_map(lib.pn_link_remote_properties(self.pointer)) if self.alive else {}

    @property
    def credit(self) -> int:
        """Messages that may still be sent (sender), or come and be taken (receiver)."""
        return int(lib.pn_link_credit(self.pointer)) if self.alive else 0

    def forget(self) -> None:
        """The link or its connection is gone: touch no pointer any more."""
        self.alive = False


class SenderLink(Link):
    """Sends messages and tells their outcomes."""

    def __init__(self, proton_link: Any, session: Session) -> None:
        super().__init__(proton_link, session)
        self._in_flight: dict[Delivery, Sendable] = {}
        self._count = 0
        self._tag_bytes: Final = bytearray(8)
        self._tag_start: Final[Any] = ffi.from_buffer("char[]", self._tag_bytes)
        self._tag: Final[Any] = ffi.new("pn_bytes_t *", {"size": 8, "start": self._tag_start})
        self._long_tag: Final = LongTag()

    @property
    def message_bytes_max(self) -> int:
        """The largest message the peer takes; 0: it names no limit."""
        return int(lib.pn_link_remote_max_message_size(self.pointer)) if self.alive else 0

    @property
    def in_flight(self) -> int:
        """Events sent whose outcome is not known."""
        return len(self._in_flight)

    def room(self) -> int:
        """How many messages may be sent now: the peer's credit, nothing while much is waiting for the socket."""
        if not self.alive or lib.pn_session_outgoing_bytes(self.session.pointer) >= SEND_BUFFER_BYTES_MAX:
            return 0
        return int(lib.pn_link_credit(self.pointer))

    def send(self, events: Sequence[Sendable], *, formatted: bool = False) -> int:
        """Send the first of `events`, for which `room` must have been asked; returns how many (fewer where they are large).

        `formatted`: some may have a message-format that is not 0, and `ConnectionProtocol.write_formats` was called.
        """
        if not self.alive:
            return 0
        link, in_flight, tag, tag_bytes = self.pointer, self._in_flight, self._tag[0], self._tag_bytes
        new_delivery, send, advance, write_tag = lib.pn_delivery, lib.pn_link_send, lib.pn_link_advance, _write_tag
        count, first, sent_bytes = self._count, self._count, 0
        for event in events:
            count += 1
            write_tag(tag_bytes, 0, count)
            delivery = new_delivery(link, self._long_tag.of(count, event.message_format) if formatted and event.message_format else tag)
            message = event.message
            size = len(message)
            send(link, message, size)
            advance(link)
            in_flight[delivery] = event
            sent_bytes += size
            if sent_bytes > SEND_BUFFER_BYTES_MAX:
                break
        self._count = count
        return count - first

    def outcome_of(self, delivery: Delivery, accepted: list[Sendable], refused: list[tuple[Sendable, EndpointError]]) -> None:
        """Look at a delivery that changed; if its outcome is there, add its event to one of the lists."""
        state = lib.pn_delivery_remote_state(delivery)
        if state != _ACCEPTED and state not in _REFUSALS and not lib.pn_delivery_settled(delivery):
            return
        event = self._in_flight.pop(delivery, None)
        if event is None:
            return
        if state == _ACCEPTED:
            accepted.append(event)
        else:
            refused.append((event, _refusal(delivery, state)))
        lib.pn_delivery_settle(delivery)

    def forget(self) -> None:
        """The same, for the deliveries too."""
        super().forget()
        self._in_flight.clear()


class ReceiverLink(Link):
    """Receives messages under a credit window; the caller says by `grant` how much more may come."""

    def __init__(self, proton_link: Any, session: Session, message_bytes_max: int) -> None:
        super().__init__(proton_link, session)
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
        """The message-formats of deliveries that were taken and are not settled, asked once for each; empty: they are all 0."""
        return self.formats.pop(deliveries) if self.formats is not None and self.alive else ()

    @property
    def filters(self) -> frozenset[str]:
        """Names of the filters that the peer says are in force (AMQP 1.0 core 3.5.3)."""
        return frozenset(read_map(lib.pn_terminus_filter(lib.pn_link_remote_source(self.pointer)))) if self.alive else frozenset()

    @property
    def capabilities(self) -> frozenset[str]:
        """What the peer says its source is capable of (AMQP 3.5.3)."""
        return frozenset(read_symbols(lib.pn_terminus_capabilities(lib.pn_link_remote_source(self.pointer)))) if self.alive else frozenset()

    @property
    def durable(self) -> bool:
        """The peer keeps the place of this source when the link is gone (AMQP 3.5.5, 3.5.6)."""
        if not self.alive:
            return False
        source = lib.pn_link_remote_source(self.pointer)
        kept = lib.pn_terminus_get_durability(source) != lib.PN_NONDURABLE
        return bool(kept and lib.pn_terminus_get_expiry_policy(source) == lib.PN_EXPIRE_NEVER)

    @property
    def credit(self) -> int:
        """Messages that may still come, or have come and were not taken."""
        return super().credit + len(self._aside)

    def room(self, most: int) -> int:
        """How much credit may be granted so that at most `most` messages, and no more than this link's share of memory, are unread."""
        return min(most, self.session.unread.messages(self._size)) - self.credit

    def grant(self, credit: int) -> None:
        """Let the peer send `credit` more."""
        if self.alive and not self.detached and credit > 0:
            lib.pn_link_flow(self.pointer, credit)

    def drain(self, credit: int) -> None:
        """Let the peer send `credit` more, and give back at once what it has nothing for (AMQP 2.6.7)."""
        if self.alive and not self.detached:
            lib.pn_link_drain(self.pointer, credit)

    @property
    def draining(self) -> bool:
        """A drain was asked for and not answered yet."""
        return bool(self.alive and lib.pn_link_draining(self.pointer))

    def take_drained(self) -> int:
        """Credit that the peer gave back since this was last asked for: it had nothing to send for it."""
        return int(lib.pn_link_drained(self.pointer)) if self.alive else 0

    @property
    def window_full(self) -> bool:
        """So much is unsettled that the node sends nothing more before some of it is settled."""
        connection = lib.pn_session_connection(lib.pn_link_session(self.pointer))
        most = read_map(lib.pn_connection_remote_properties(connection)).get(names.UNSETTLED_MAX)
        return isinstance(most, int) and lib.pn_link_unsettled(self.pointer) >= most

    def take(self, count_max: int) -> tuple[list[bytes], list[Delivery], int]:
        """Complete messages that have come, at most `count_max`, their deliveries, and how many credits went to aborted ones."""
        if self._aside or self._aside_aborted:
            return self._take_aside(count_max)
        taken = self._take(count_max)
        if messages := taken[0]:
            size = sum(map(len, messages)) // len(messages)
            self._size = max(1, size, (self._size + size) // 2)
        return taken

    def set_aside(self) -> None:
        """Move unread messages out of the session's window, as far as there is memory for that."""
        unread = self.session.unread
        while self.alive and unread.set_aside < SET_ASIDE_BYTES_MAX:
            messages, deliveries, aborted = self._take(_SET_ASIDE_STEP)
            self._aside.extend(zip(messages, deliveries, strict=True))
            self._aside_aborted += aborted
            unread.set_aside += sum(map(len, messages))
            if not messages:
                return

    def _take_aside(self, count_max: int) -> tuple[list[bytes], list[Delivery], int]:
        aside = self._aside
        taken = [aside.popleft() for _ in range(min(count_max, len(aside)))]
        self.session.unread.set_aside -= sum(len(message) for message, _ in taken)
        aborted, self._aside_aborted = self._aside_aborted, 0
        return [message for message, _ in taken], [delivery for _, delivery in taken], aborted

    def _take(self, count_max: int) -> tuple[list[bytes], list[Delivery], int]:
        messages: list[bytes] = []
        deliveries: list[Delivery] = []
        aborted = 0
        if not self.alive:
            return messages, deliveries, aborted
        link, pointer, view = self.pointer, _scratch.pointer, _scratch.view
        current, partial, pending, recv, advance = (
            lib.pn_link_current,
            lib.pn_delivery_partial,
            lib.pn_delivery_pending,
            lib.pn_link_recv,
            lib.pn_link_advance,
        )
        while len(messages) < count_max:
            delivery = current(link)
            if delivery == ffi.NULL:
                break
            size = pending(delivery)
            if partial(delivery) or self._partial or size > _RECEIVE_BYTES or size == 0:
                whole = self._take_piece(delivery, size)
                if whole is None:
                    if lib.pn_delivery_aborted(delivery):
                        aborted += 1
                        continue
                    break
                messages.append(whole)
            else:
                recv(link, pointer, size)
                messages.append(bytes(view[:size]))
            advance(link)
            deliveries.append(delivery)
        return messages, deliveries, aborted

    def _take_piece(self, delivery: Delivery, size: int) -> bytes | None:
        """Move what has come of a large delivery here; the whole message when it is complete. An aborted one is dropped."""
        if lib.pn_delivery_aborted(delivery):
            self._partial.clear()
            lib.pn_link_advance(self.pointer)
            lib.pn_delivery_settle(delivery)
            return None
        while size > 0:
            taken = lib.pn_link_recv(self.pointer, _scratch.pointer, min(size, _RECEIVE_BYTES))
            if taken <= 0:
                break
            self._partial += _scratch.view[:taken]
            size -= taken
        if len(self._partial) > self._message_bytes_max:
            self._partial.clear()
            self.oversized = True
            return None
        if lib.pn_delivery_partial(delivery):
            return None
        whole = bytes(self._partial)
        self._partial.clear()
        return whole

    def save_unread(self) -> None:
        """The peer has detached: take what is here, if that is wanted."""
        while self.keeps_unread and (messages := self.take(sys.maxsize)[0]):
            self.unread += messages

    def settle(self, deliveries: Iterable[Delivery], outcome: Outcome) -> None:
        """Say what became of deliveries taken from this link and not settled before."""
        if not self.alive:
            return
        update, settle, state = lib.pn_delivery_update, lib.pn_delivery_settle, _STATES[outcome]
        failed = outcome is Outcome.MODIFIED
        for delivery in deliveries:
            if failed:
                lib.pn_disposition_set_failed(lib.pn_delivery_local(delivery), True)
            update(delivery, state)
            settle(delivery)

    def forget(self) -> None:
        """The same, and what was not taken."""
        super().forget()
        if self.formats is not None:
            self.formats.forget()
        self._partial.clear()
        self.session.unread.set_aside -= sum(len(message) for message, _ in self._aside)
        self._aside.clear()


_REFUSALS: Final = frozenset({lib.PN_REJECTED, lib.PN_RELEASED, lib.PN_MODIFIED})


def _refusal(delivery: Delivery, state: int) -> EndpointError:
    if state == lib.PN_REJECTED:
        error = read_condition(lib.pn_disposition_condition(lib.pn_delivery_remote(delivery)), "rejected")
        # With this one nothing is wrong with the event: the node is short of something, space mostly.
        return (ReleasedError if error[0] == names.RESOURCE_LIMIT_EXCEEDED else RejectedError)(*error)
    if state == lib.PN_MODIFIED:
        return ReleasedError("modified", "the peer did not store it (modified)")
    return ReleasedError("released", "the peer did not store it (released)")
