"""A scripted AMQP node on Proton that takes and returns bytes. Clients are tested against it without a
network.

It records what it accepted, by address, delivers messages that the test has prepared, and treats messages,
links and connections as the test requests.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, Final

import proton

from amqp_streams.wire.codec import Array, Described, Symbol, UByte, ULong, decode, encode
from tests.amqp_streams.decoded import binary, described, items

_SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
ACCEPTED: Final = proton.Delivery.ACCEPTED
RELEASED: Final = proton.Delivery.RELEASED
MODIFIED: Final = proton.Delivery.MODIFIED
REJECTED: Final = proton.Delivery.REJECTED


class Node:
    """The state that outlives a connection: logs, and the rules that the test sets."""

    def __init__(self) -> None:
        self.stored: dict[str, list[bytes]] = defaultdict(list)
        self.outgoing: dict[str, deque[bytes]] = defaultdict(deque)
        self.mechanisms: tuple[str, ...] = ("PLAIN", "ANONYMOUS")
        self.password_ok: Callable[[str, bytes], bool] = lambda mechanism, response: True
        self.refused: dict[str, proton.Condition] = {}
        self.null_termini = True
        self.mute = False
        self.keeps_filters = True
        self.keeps_places = True
        self.drains = False
        self.window = 0
        self.channel_max = 0x7FFF
        self.outcome: Callable[[bytes], object | None] = lambda message: ACCEPTED
        self.condition: proton.Condition | None = None
        self.capabilities: list[str] = []
        self.credit = 100
        self.max_message_size = 0
        self.link_properties: dict[str, object] = {}
        self.attaches: list[Any] = []
        self.outcomes: list[tuple[int, bool]] = []
        self.on_attach: Callable[[Any, Any], None] = lambda peer, link: None
        self.on_detach: Callable[[Any, Any], None] = lambda peer, link: None
        self.holds: Callable[[Any, Any], bool] = lambda peer, link: False
        """True: this attach is not answered; `Peer.take` or `Peer.refuse` does it later."""
        self.queue_of: Callable[[Any], str] = lambda link: str(link.target.address or link.source.address)
        """The address in `outgoing` from which a link takes its messages."""
        self.answer: Callable[[bytes], tuple[str, bytes] | None] = lambda message: None


class Peer:
    """One connection to the node."""

    def __init__(self, node: Node, *, sasl: bool = True) -> None:
        self.node: Final = node
        self.connection = proton.Connection()
        self.transport = proton.Transport(proton.Transport.SERVER)
        self.transport.max_frame_size = 4096
        self.transport.channel_max = node.channel_max
        self.collector = proton.Collector()
        self.connection.collect(self.collector)
        self.transport.bind(self.connection)
        self.saslframes: list[object] = []
        self.held: list[Any] = []
        self.senders: list[Any] = []
        self.closed = False
        self.container = "peer"
        self.store: str | None = None
        """What it tells about its store."""
        self._sasl = sasl
        self._input = bytearray()
        self._output = bytearray()
        self._greeted = False
        self._tags = 0

    # -- bytes

    def receive(self, data: bytes) -> None:
        self._input += data
        if self._sasl:
            self._receive_sasl()
        if not self._sasl and self._input and self.transport.capacity() > 0:
            at = 0
            while at < len(self._input):
                piece = bytes(self._input[at : at + self.transport.capacity()])
                self.transport.push(piece)
                at += len(piece)
                self.work()
            self._input.clear()
        self.work()

    def take_output(self) -> bytes:
        output = bytes(self._output)
        self._output.clear()
        while not self._sasl and (pending := self.transport.pending()) > 0:
            output += binary(self.transport.peek(pending))
            self.transport.pop(pending)
        return output

    def _receive_sasl(self) -> None:
        if not self._greeted and len(self._input) >= 8:
            assert bytes(self._input[:8]) == _SASL_HEADER
            del self._input[:8]
            self._greeted = True
            mechanisms = Array(Symbol, tuple(Symbol(name) for name in self.node.mechanisms))
            self._output += _SASL_HEADER + _frame(Described(ULong(0x40), [mechanisms]))
        if (
            self._greeted
            and len(self._input) >= 4
            and len(self._input) >= (size := int.from_bytes(self._input[:4]))
        ):
            value, _ = decode(bytes(self._input[8:size]))
            del self._input[:size]
            self.saslframes.append(value)
            mechanism, response = items(described(value).value)[:2]
            good = self.node.password_ok(str(mechanism), binary(response or b""))
            self._output += _frame(Described(ULong(0x44), [UByte(0 if good else 1)]))
            self._sasl = not good

    # -- events

    def work(self) -> None:
        while (event := self.collector.peek()) is not None:
            handler = getattr(self, f"_{event.type.name.removeprefix('PN_').lower()}", None)
            if handler is not None:
                handler(event)
            self.collector.pop()
        self.deliver()

    def _connection_remote_open(self, _event: Any) -> None:
        self.connection.container = self.container
        if self.store is not None:
            self.connection.properties = {proton.symbol("amqp-streams:store"): self.store}
        if self.node.capabilities:
            self.connection.offered_capabilities = [proton.symbol(name) for name in self.node.capabilities]
        self.connection.open()

    def _connection_remote_close(self, _event: Any) -> None:
        self.connection.close()
        self.closed = True

    def read(self) -> None:
        """Take the messages that a `window` left unread, and open the window."""
        self.node.window = 0
        for link in self.node.attaches:
            while link.is_receiver and link.current is not None and not link.current.partial:
                delivery = link.current
                message = bytes(link.recv(delivery.pending) or b"")
                link.advance()
                self.settle(delivery, message, link.target.address, ACCEPTED)
        self.work()

    def _session_remote_open(self, event: Any) -> None:
        if self.node.window:
            event.session.incoming_capacity = self.node.window
        event.session.open()

    def _session_remote_close(self, event: Any) -> None:
        event.session.close()

    def _link_remote_open(self, event: Any) -> None:
        link = event.link
        address = link.remote_target.address if link.is_receiver else link.remote_source.address
        self.node.attaches.append(link)
        condition = self.node.refused.get(address)
        if condition is not None:
            self.refuse(link, condition)
        elif not self.node.holds(self, link):
            self.take(link, self.node.link_properties)

    def refuse(self, link: Any, condition: proton.Condition) -> None:
        if self.node.null_termini:
            link.source.type = link.target.type = proton.Terminus.UNSPECIFIED
        link.open()
        link.condition = condition
        link.close()

    def take(self, link: Any, properties: dict[str, object]) -> None:
        link.source.copy(link.remote_source)
        if not self.node.keeps_filters:
            link.source.filter.clear()
        if not self.node.keeps_places:
            link.source.durability = proton.Terminus.NONDURABLE
        link.target.copy(link.remote_target)
        link.properties = {proton.symbol(key): value for key, value in properties.items()} or None
        if self.node.max_message_size:
            link.max_message_size = self.node.max_message_size
        link.open()
        if link.is_receiver:
            link.flow(self.node.credit)
        else:
            self.senders.append(link)
        self.node.on_attach(self, link)

    def _link_remote_close(self, event: Any) -> None:
        if event.link in self.senders:
            self.senders.remove(event.link)
        self.node.on_detach(self, event.link)
        event.link.close()

    def _delivery(self, event: Any) -> None:
        delivery, link = event.delivery, event.link
        if link.is_sender:
            if delivery.updated:
                self.node.outcomes.append((int(delivery.remote_state), bool(delivery.settled)))
                delivery.settle()
            return
        if delivery.partial or not delivery.readable or self.node.window:
            return
        message = bytes(link.recv(delivery.pending) or b"")
        link.advance()
        self._answer(message)
        outcome = self.node.outcome(message)
        if outcome is None:
            self.held.append((delivery, message, link.target.address))
            return
        self.settle(delivery, message, link.target.address, outcome)
        link.flow(1)

    def settle(self, delivery: Any, message: bytes, address: str, outcome: object) -> None:
        if outcome == ACCEPTED:
            self.node.stored[address].append(message)
        if outcome == REJECTED and self.node.condition is not None:
            delivery.local.condition = self.node.condition
        delivery.update(outcome)
        delivery.settle()

    def settle_held(self, outcome: object = ACCEPTED) -> None:
        held, self.held = self.held, []
        for delivery, message, address in held:
            self.settle(delivery, message, address, outcome)

    def _answer(self, message: bytes) -> None:
        if (answer := self.node.answer(message)) is not None:
            self.node.outgoing[answer[0]].append(answer[1])

    def deliver(self) -> None:
        for link in self.senders:
            outgoing = self.node.outgoing[self.node.queue_of(link)]
            while outgoing and link.credit > 0:
                self._tags += 1
                delivery = link.delivery(str(self._tags))
                link.stream(outgoing.popleft())
                link.advance()
                if link.remote_snd_settle_mode == proton.Link.SND_SETTLED:
                    delivery.settle()
            if self.node.drains and link.drain_mode and not outgoing:
                link.drained()


def _frame(value: object) -> bytes:
    body = encode(value)
    return (len(body) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + body
