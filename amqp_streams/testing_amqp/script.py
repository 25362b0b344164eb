"""A peer that is a script: it sends the frames that a test writes and keeps those that come, in order."""

from itertools import count
from typing import Any, Final

from amqp_streams.server.identity.guard import Login, PasswordCheck
from amqp_streams.testing_amqp.node import InMemoryNode
from amqp_streams.wire.frames import Performative, frame, performative, read_frame, read_performative
from amqp_streams.wire.types import Array, Described, UInt, ULong, Value

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
_CONTAINERS: Final = count()


class ScriptedPeer:
    """Sends the frames that a test writes and keeps those that come, in order."""

    def __init__(
        self,
        node: InMemoryNode,
        *,
        header: bytes = AMQP_HEADER,
        loopback: bool = True,
        users: PasswordCheck | None = None,
        login: Login | None = None,
    ) -> None:
        """With a `login` it is past the security layer already."""
        self.node = node
        self.got = bytearray()
        self.lost = False
        self.heartbeats = 0
        self._out = bytearray(header)
        self._frames: list[tuple[int, Performative]] = []
        self._at = len(AMQP_HEADER)
        self.channel = node.connect(self, loopback=loopback, users=users, login=login)

    def write(self, data: bytes) -> None:
        """Send bytes, whatever they are."""
        self._out += data
        self.node.run()

    def send(self, name: str, payload: bytes = b"", /, *, channel: int = 0, **fields: Any) -> None:
        """Send one frame; the fields by the standard's names, hyphens as underscores."""
        self.write(frame_of(name, payload, channel=channel, **fields))

    def open(self, **fields: Any) -> Performative:
        """Open and begin session 0 with a wide window; what the node answered to the open."""
        return self.open_with_window(1 << 20, **fields)

    def open_with_window(self, incoming_window: int, **fields: Any) -> Performative:
        """The same with room for so many transfers."""
        self._out += frame_of("open", **({"container_id": f"script-{next(_CONTAINERS)}"} | fields))
        self.send(
            "begin",
            next_outgoing_id=UInt(0),
            incoming_window=UInt(incoming_window),
            outgoing_window=UInt(1 << 20),
        )
        return self.take("open")[0]

    def attach(
        self,
        handle: int,
        *,
        source: str | None = None,
        target: str | None = None,
        filters: Value = None,
        **fields: Any,
    ) -> list[Performative]:
        """Attach a sender (with `target`) or a receiver (with `source`).

        The attach that came back, and a detach if there was one.
        """
        receiver = source is not None
        both: dict[str, Value] = {
            "name": f"link-{handle}",
            "handle": UInt(handle),
            "role": receiver,
            "source": terminus(0x28, source, filter=filters),
            "target": terminus(0x29, target),
            "initial_delivery_count": None if receiver else UInt(0),
        }
        self.send("attach", **(both | fields))
        return self.take("attach") + self.take("detach")

    def skip_to_amqp(self) -> None:
        """Frames are read from behind the AMQP header on: the security layer is over."""
        self._at = self.got.index(AMQP_HEADER) + len(AMQP_HEADER)

    def transfer(self, handle: int, number: int, payload: bytes, **fields: Any) -> None:
        """Send a delivery, or a part of it."""
        first: dict[str, Value] = {
            "handle": UInt(handle),
            "delivery_id": UInt(number),
            "delivery_tag": b"%d" % number,
        }
        self.send("transfer", payload, **(first | fields))

    def flow(self, handle: int | None, credit: int = 0, **fields: Any) -> None:
        """Send a flow for a link, or with None for the session."""
        link: dict[str, Value] = (
            {}
            if handle is None
            else {"handle": UInt(handle), "delivery_count": UInt(0), "link_credit": UInt(credit)}
        )
        session: dict[str, Value] = {"next_incoming_id": UInt(0), "incoming_window": UInt(1 << 20)}
        session |= {"next_outgoing_id": UInt(0), "outgoing_window": UInt(1 << 20)}
        self.send("flow", **(session | link | fields))

    def take(self, name: str) -> list[Performative]:
        """The performatives of this name that have come since the last call."""
        # All of it: frames of other names stay for a later call.
        self._read(bytes(self.got))
        taken = [found for _, found in self._frames if found.name == name]
        self._frames = [entry for entry in self._frames if entry[1].name != name]
        return taken

    def _read(self, data: bytes) -> None:
        while (found := read_frame(data, self._at)) is not None:
            one, self._at = found
            if one.body:
                self._frames.append((one.channel, read_performative(one.body)))
            else:
                # A frame without a body.
                self.heartbeats += 1

    def output(self) -> bytes:
        """See `Peer`."""
        data, self._out = bytes(self._out), bytearray()
        return data

    def input(self, data: bytes) -> None:
        """See `Peer`."""
        self.got += data

    def closed(self) -> None:
        """See `Peer`."""
        self.lost = True

    @property
    def protocol(self) -> bytes:
        """The header that the node answered with."""
        return bytes(self.got[: len(AMQP_HEADER)])


def frame_of(name: str, payload: bytes = b"", /, *, channel: int = 0, **fields: Any) -> bytes:
    """One frame; the fields by the standard's names, hyphens as underscores."""
    return frame(
        channel, performative(name, {key.replace("_", "-"): value for key, value in fields.items()}) + payload
    )


def terminus(code: int, address: str | None, **rest: Value) -> Described:
    """A source (0x28) or a target (0x29).

    `rest`: further fields by the standard's names, hyphens as underscores.
    """
    fields = SOURCE_FIELDS if code == 0x28 else TARGET_FIELDS
    given = {"address": address} | {key.replace("_", "-"): value for key, value in rest.items()}
    values: list[Value] = [given.get(each) for each in fields]
    # As encoders write lists: absent fields at the end are left out.
    while values and values[-1] is None:
        values.pop()
    return Described(ULong(code), values)


TARGET_FIELDS: Final = (
    "address",
    "durable",
    "expiry-policy",
    "timeout",
    "dynamic",
    "dynamic-node-properties",
    "capabilities",
)
SOURCE_FIELDS: Final = (
    *TARGET_FIELDS[:-1],
    "distribution-mode",
    "filter",
    "default-outcome",
    "outcomes",
    "capabilities",
)


def symbols(value: Value) -> list[str]:
    """A field that holds one symbol or an array of them."""
    if isinstance(value, Array):
        return [str(item) for item in value.items]
    return [] if value is None else [str(value)]
