"""A client connection made of Proton's public objects, joined to an in-memory node by byte buffers."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import proton

from amqp_streams import names
from amqp_streams.server.identity.guard import Login
from amqp_streams.testing_amqp.node import InMemoryNode

_OUTCOMES: Final = {
    int(state): name
    for name, state in (
        ("accepted", proton.Delivery.ACCEPTED),
        ("rejected", proton.Delivery.REJECTED),
        ("released", proton.Delivery.RELEASED),
        ("modified", proton.Delivery.MODIFIED),
    )
}
_CONTAINERS: Final = count()


@dataclass(slots=True, eq=False)
class Arrived:
    """One delivery to a receiver, complete."""

    delivery: proton.Delivery
    raw: bytes
    settled: bool
    _message: proton.Message | None = None

    @property
    def message(self) -> proton.Message:
        """The message as Proton decodes it; delivery annotations are its `instructions`."""
        if self._message is None:
            self._message = proton.Message()
            self._message.decode(self.raw)
        return self._message

    @property
    def body(self) -> Any:
        """The body, binary as bytes."""
        body = self.message.body
        return bytes(body) if isinstance(body, memoryview) else body

    @property
    def annotations(self) -> dict[str, Any]:
        """The delivery annotations."""
        return {str(key): value for key, value in (self.message.instructions or {}).items()}


@dataclass(slots=True, eq=False)
class Receiving:
    """A receiver link. Deliveries are collected, not settled."""

    link: proton.Receiver
    arrived: list[Arrived] = field(default_factory=list)

    @property
    def bodies(self) -> list[Any]:
        """The bodies that have arrived, in order."""
        return [each.body for each in self.arrived]

    @property
    def refused(self) -> str | None:
        """The condition that the node closed the link with."""
        return _condition(self.link)

    @property
    def info(self) -> dict[str, Any]:
        """The `info` map that the node sent with that condition."""
        found: Any = self.link.remote_condition
        return {str(key): value for key, value in ((found.info if found else None) or {}).items()}

    @property
    def pending(self) -> bool:
        """Whether the node has not answered the attach yet."""
        return bool(self.link.state & proton.Endpoint.REMOTE_UNINIT)

    @property
    def answered(self) -> dict[str, Any]:
        """The link properties of the node's answer."""
        properties: Any = self.link.remote_properties
        return {str(key): value for key, value in (properties or {}).items()}

    def take(self) -> list[Arrived]:
        """What has arrived since the last call."""
        taken, self.arrived = self.arrived, []
        return taken


@dataclass(slots=True, eq=False)
class Sent:
    """One delivery from a sender."""

    delivery: proton.Delivery

    @property
    def outcome(self) -> str | None:
        """`accepted`, `rejected`, `released`, `modified`; None: nothing yet."""
        return _OUTCOMES.get(int(self.delivery.remote_state))

    @property
    def condition(self) -> str | None:
        """Why it was rejected."""
        found = self.delivery.remote.condition
        return found.name if found else None


@dataclass(slots=True, eq=False)
class Sending:
    """A sender link."""

    link: proton.Sender
    _tags: Iterator[int] = field(default_factory=count)

    @property
    def refused(self) -> str | None:
        """The condition that the node closed the link with."""
        return _condition(self.link)

    def send(self, message: proton.Message | bytes, *, settled: bool = False) -> Sent:
        """Hand one message to the engine, which sends it when there is credit."""
        delivery = self.link.delivery(str(next(self._tags)))
        self.link.stream(message if isinstance(message, bytes) else bytes(message.encode()))
        self.link.advance()
        if settled:
            delivery.settle()
        return Sent(delivery)


class EnginePair:
    """A client connection of Proton's own objects, joined to a node by byte buffers.

    `node` may be shared by several pairs; each has a `container` of its own by default. With
    `opened` the connection and one session are open when this returns. `login`: who it is, None: anonymous.
    """

    def __init__(
        self,
        node: InMemoryNode,
        *,
        container: str | None = None,
        opened: bool = True,
        max_frame: int | None = None,
        idle_timeout_s: float | None = None,
        desired: list[str] | None = None,
        login: Login | None = None,
    ) -> None:
        self.node = node
        self.connection = proton.Connection()
        self.transport = proton.Transport()
        self._collector = proton.Collector()
        self._receivers: dict[str, Receiving] = {}
        self.lost = False
        # Before anything else: events that no collector takes are lost.
        self.connection.collect(self._collector)
        self.connection.container = f"client-{next(_CONTAINERS)}" if container is None else container
        if desired:
            self.connection.desired_capabilities = desired
        if max_frame:
            self.transport.max_frame_size = max_frame
        if idle_timeout_s:
            self.transport.idle_timeout = idle_timeout_s
        self.transport.bind(self.connection)
        self.channel = node.connect(self, login=login)
        self._names = count()
        if opened:
            self.connection.open()
            self.session = self.connection.session()
            self.session.open()
            node.run()

    # -- links

    def sender(self, target: str | None, *, name: str | None = None, **options: Any) -> Sending:
        """Attach a sender; see `_attach` for the options."""
        link = self.session.sender(name or f"sender-{next(self._names)}")
        if target is not None:
            link.target.address = target
        sending = Sending(link)
        self._attach(link, **options)
        return sending

    def receiver(
        self,
        source: str | None,
        *,
        name: str | None = None,
        credit: int = 0,
        durable: bool = False,
        **options: Any,
    ) -> Receiving:
        """Attach a receiver, and grant it credit; see `_attach` for the options.

        `durable`: the node keeps its cursor under its name.
        """
        link = self.session.receiver(name or f"receiver-{next(self._names)}")
        if source is not None:
            link.source.address = source
        if durable:
            link.source.durability, link.source.expiry_policy = (
                proton.Terminus.DELIVERIES,
                proton.Terminus.EXPIRE_NEVER,
            )
        receiving = self._receivers[link.name] = Receiving(link)
        self._attach(link, **options)
        if credit:
            self.flow(receiving, credit)
        return receiving

    def _attach(
        self,
        link: proton.Link,
        *,
        properties: Mapping[str, Any] | None = None,
        partition: int | None = None,
        group: str | None = None,
        epoch: int | None = None,
        filters: Mapping[str, Any] | None = None,
        settle: tuple[int, int] | None = None,
        prepare: Callable[[Any], None] | None = None,
    ) -> None:
        """`properties`: link properties, to which `partition`, `group`, `epoch` add theirs.

        `filters`: of the source, by name.

        `settle`: sender's and receiver's mode. `prepare`: more.
        """
        bindings = {
            names.PARTITION: None if partition is None else proton.symbol(str(partition)),
            names.CONSUMER_GROUP: group,
            names.EPOCH: None if epoch is None else proton.ulong(epoch),
        }
        given = dict(properties or {}) | {key: value for key, value in bindings.items() if value is not None}
        if given:
            link.properties = {proton.symbol(key): value for key, value in given.items()}
        if filters is not None:
            link.source.filter.put_object({proton.symbol(key): value for key, value in filters.items()})
        if settle is not None:
            link.snd_settle_mode, link.rcv_settle_mode = settle
        if prepare is not None:
            prepare(link)
        link.open()
        self.node.run()

    def flow(self, receiving: Receiving, credit: int) -> None:
        """Grant credit and let the node answer."""
        receiving.link.flow(credit)
        self.node.run()

    def detach(self, link: Receiving | Sending, *, closed: bool = True) -> None:
        """Detach a link for good, or (not `closed`) so that what is kept under its name is meant to stay."""
        if closed:
            link.link.close()
        else:
            link.link.detach()
        self.node.run()
        link.link.free()  # its name may be used again

    def settle(self, arrived: Arrived, state: Any = proton.Delivery.ACCEPTED) -> None:
        """Set an outcome and settle."""
        arrived.delivery.update(state)
        arrived.delivery.settle()

    def send(self, sending: Sending, *messages: proton.Message | bytes, settled: bool = False) -> list[Sent]:
        """Send and let the node answer."""
        sent = [sending.send(message, settled=settled) for message in messages]
        self.node.run()
        return sent

    # -- the wire

    def output(self) -> bytes:
        """See `Peer`."""
        output = b""
        while (pending := self.transport.pending()) > 0:
            output += self.transport.peek(pending) or b""
            self.transport.pop(pending)
        return output

    def input(self, data: bytes) -> None:
        """See `Peer`."""
        # Proton takes only as much as its buffer has space for.
        while data and (capacity := self.transport.capacity()) > 0:
            self.transport.push(data[:capacity])
            data = data[capacity:]
        while event := self._collector.peek():
            if event.delivery is not None and event.type == proton.Event.DELIVERY:
                self._collect(event.delivery)
            # After the event was used: Proton frees what it names.
            self._collector.pop()

    def closed(self) -> None:
        """See `Peer`."""
        self.lost = True

    def _collect(self, delivery: proton.Delivery) -> None:
        link = delivery.link
        if link.is_receiver and delivery.readable and not delivery.partial:
            raw = link.recv(delivery.pending)
            # Before `advance`, which moves on from the delivery.
            settled = delivery.settled
            link.advance()
            self._receivers[link.name].arrived.append(Arrived(delivery, bytes(raw or b""), settled))


def _condition(link: proton.Link) -> str | None:
    found = link.remote_condition
    return found.name if found and not link.state & proton.Endpoint.REMOTE_ACTIVE else None


def filter_of(
    offset: str | None = None, timestamp_ms: int | None = None, *, code: bool = False
) -> dict[str, Any]:
    """A source's filters that start behind an offset, a time, or both, for `EnginePair.receiver`."""
    conditions: dict[Any, Any] = {}
    if offset is not None:
        conditions[proton.symbol(names.OFFSET)] = proton.symbol(offset)
    if timestamp_ms is not None:
        conditions[proton.symbol(names.TIMESTAMP)] = proton.timestamp(timestamp_ms)
    name = names.FILTER_DELIVERY_ANNOTATIONS
    descriptor = proton.ulong(names.FILTER_DELIVERY_ANNOTATIONS_CODE) if code else proton.symbol(name)
    return {name: proton.Described(descriptor, conditions)}
