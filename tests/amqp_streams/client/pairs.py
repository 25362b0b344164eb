"""A client's protocol joined to a scripted peer through byte buffers."""

from typing import Any

from amqp_streams.client.connection.mechanisms import Credentials
from amqp_streams.client.connection.protocol import ConnectionProtocol
from amqp_streams.client.connection.protocol_events import Attached, Opened, ProtocolEvent
from amqp_streams.client.producing.outbox import Entry
from tests.amqp_streams.client.peer import Node, Peer


class Pair:
    """A client's protocol and a peer; `run` carries bytes until nothing moves."""

    def __init__(self, node: Node | None = None, *, user: str | None = None, piece: int = 1 << 30) -> None:
        self.node = node or Node()
        self.peer = Peer(self.node)
        self.piece = piece
        self.client = ConnectionProtocol(
            container_id="c",
            hostname="h",
            credentials=Credentials(user, "secret" if user else None),
            idle_timeout_ms=30_000,
        )
        self.protocol_events: list[ProtocolEvent] = []

    def run(self) -> list[ProtocolEvent]:
        """Return what happened since the last call."""
        moved = True
        while moved:
            moved = False
            if out := self.client.take_output():
                moved = True
                self.peer.receive(out)
            if back := self.peer.take_output():
                moved = True
                for at in range(0, len(back), self.piece):
                    self.protocol_events += self.client.receive(back[at : at + self.piece])
        told, self.protocol_events = self.protocol_events, []
        return told


def opened(**options: Any) -> Pair:
    pair = Pair(**options)
    assert [type(protocol_event) for protocol_event in pair.run()] == [Opened]
    return pair


def message(number: int) -> bytes:
    return b"\x00\x53\x77\xa1\x04%04d" % number


def entries(count: int) -> list[Entry]:
    return [Entry(number, message(number)) for number in range(count)]


def sender(pair: Pair, address: str = "log") -> Any:
    link = pair.client.open_sender(address)
    assert Attached(link) in pair.run()
    return link


def receiver(pair: Pair, address: str = "log", credit: int = 10, **options: Any) -> Any:
    link = pair.client.open_receiver(address, **options)
    pair.run()
    link.grant(credit)
    pair.run()
    return link
