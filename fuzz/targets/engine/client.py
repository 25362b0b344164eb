"""The client's end of a connection, talking to a node that means no good: it must say what is wrong, and
never raise.
"""

from dataclasses import dataclass
from typing import Final

from amqp_streams.client.connection.mechanisms import Credentials
from amqp_streams.client.connection.protocol import ConnectionProtocol
from amqp_streams.client.connection.protocol_events import Closed, Opened, ProtocolEvent
from amqp_streams.testing_amqp.script import AMQP_HEADER, frame_of, terminus
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.frames import frame
from amqp_streams.wire.types import Described, Symbol, UByte, UInt, ULong, UShort
from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from fuzz.targets.engine.sasl import challenged
from fuzz.targets.engine.speech import frames_of

_HEADER: Final = b"AMQP\x03\x01\x00\x00"
_WELCOME: Final = (
    _HEADER
    + frame(0, encode(Described(ULong(0x40), [Symbol("ANONYMOUS")])), type=1)
    + frame(0, encode(Described(ULong(0x44), [UByte(0)])), type=1)
    + AMQP_HEADER
)


@dataclass(frozen=True, slots=True)
class _Event:
    message: bytes
    message_format: int = 0


class _Client:
    """A client with a producer and a consumer."""

    def __init__(self, credentials: Credentials) -> None:
        self.protocol = ConnectionProtocol(
            container_id="client", hostname="h", credentials=credentials, idle_timeout_ms=30_000
        )
        self.told: list[ProtocolEvent] = []

    def hear(self, data: bytes) -> None:
        """Bytes came from the node."""
        self.protocol.take_output()
        if not self.protocol.closed:
            self.told += self.protocol.receive(data)
        self.protocol.take_output()


def run(data: bytes) -> str:
    """One connection."""
    draw = Draw(data)
    if draw.chance(4):
        client = _Client(Credentials("user", "password", nonce=lambda: "nonce"))
        for block in challenged(draw):
            client.hear(block)
        return _end(client)
    client = _Client(Credentials())
    client.hear(_WELCOME)
    client.hear(
        frame_of(
            "open",
            container_id="node",
            max_frame_size=UInt(draw.pick((4096, 4096, 512))),
            channel_max=UShort(10),
        )
    )
    if not client.protocol.closed:
        client.hear(_begin(0))
    if not any(isinstance(each, Opened) for each in client.told):
        return _end(client)
    sender, receiver = (
        client.protocol.open_sender("events"),
        client.protocol.open_receiver("events", durable=draw.chance(2)),
    )
    client.hear(_begin(1))
    for channel, (role, name) in enumerate(((True, sender.name), (False, receiver.name))):
        attach = {
            "name": name,
            "handle": UInt(0),
            "role": role,
            "initial_delivery_count": None if role else UInt(0),
        }
        client.hear(
            frame_of(
                "attach",
                channel=channel,
                source=terminus(0x28, "events"),
                target=terminus(0x29, "events"),
                **attach,
            )
        )
    draw.handles.append(0)
    if sender.alive and receiver.alive:
        receiver.grant(10)
    for block in frames_of(draw):
        client.hear(block)
        if sender.alive and (room := sender.room()) > 0:
            sender.send([_Event(b"\x00\x53\x77\x40")] * min(room, 3))
        if receiver.alive:
            receiver.take(100)
        if draw.chance(8) and not client.protocol.closed and client.protocol.room:
            receiver = client.protocol.open_receiver("single")  # in another session, or beside others in one
        if draw.chance(8):
            client.protocol.tick(1000 * draw.below(100))
    return _end(client)


def _begin(channel: int) -> bytes:
    """The answer to the session that the client began on this channel: a session for each of its
    first links.
    """
    windows = {"incoming_window": UInt(100), "outgoing_window": UInt(9)}
    return frame_of(
        "begin", channel=channel, remote_channel=UShort(channel), next_outgoing_id=UInt(0), **windows
    )


def _end(client: _Client) -> str:
    client.protocol.end()
    after = client.protocol.receive(b"AMQP") if not client.protocol.closed else []
    if sum(isinstance(each, Closed) for each in client.told) > 1:
        message = f"closed more than once: {client.told}"
        raise WrongError(message)
    kinds = [type(each).__name__ + str(getattr(each, "error", ""))[:24] for each in (*client.told, *after)]
    return ", ".join(sorted(set(kinds)))


TARGET: Final = Target("client", run, seconds_max=1.0)
