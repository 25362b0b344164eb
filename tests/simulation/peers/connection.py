"""An AMQP 1.0 client without Proton: it writes frames, reads frames, and checks what the node may send.

Checked here, for each connection: transfers stay within the credit and the session's window, delivery-ids
increase by one, a drain returns all credit, and no frame refers to deliveries that do not exist.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, Protocol

from amqp_streams.client.connection.mechanisms import Credentials
from amqp_streams.client.connection.sasl import SaslClient
from amqp_streams.client.errors import AuthenticationError, ConnectError
from amqp_streams.wire.frames import read_frame, read_performative
from amqp_streams.wire.types import Described, Symbol, UInt, Value
from tests.simulation.machine.network import Weather, Wire
from tests.simulation.machine.schedule import MS, Schedule
from tests.simulation.peers.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    OUTCOMES,
    UINT,
    condition_of,
    description_of,
    disposition_frame,
    error_of,
    frame_of,
    terminus,
    transfer_frame,
)
from tests.simulation.peers.links import Link, Receiver, Sender, after, distance


class Listening(Protocol):
    """A node, to connect to."""

    def connect(
        self, peer: "Connection", weather: Weather, user: str | None = None, address: str | None = None
    ) -> Wire | None:
        """Open a new connection; None: no process listens."""

    def forget(self, wire: Wire) -> None:
        """This connection is over."""


class Connection:
    """One connection with one session. The callbacks of its links decide what it does."""

    def __init__(
        self,
        node: Listening,
        schedule: Schedule,
        random: Random,
        container: str,
        *,
        weather: Weather,
        user: str | None = None,
        address: str | None = None,
        credentials: Credentials | None = None,
        may_hoard: bool = False,
        frame_bytes: int = 16 << 10,
        window: int = 2048,
        silence_ms: int = 10_000,
        ended: Callable[[str | None], None] = lambda condition: None,
        opened: Callable[[], None] = lambda: None,
    ) -> None:
        """`address`: of the client, without the port. `credentials`: for a SASL layer."""
        self.schedule: Final = schedule
        self.container: Final = container
        self.frame_bytes: Final = frame_bytes
        self.ended = ended
        self.opened = opened
        self.refused: Callable[[str], None] = lambda words: None  # the login
        self.alive = False
        self.is_open = False
        self.peer_frame_bytes = 512
        self.links: dict[int, Link] = {}
        self.sent: dict[int, Sender] = {}
        self.came: dict[int, Receiver] = {}
        self._node = node
        self._may_hoard = may_hoard
        self._silence_ms = silence_ms
        self._window: Final = window
        self._window_left = window
        self._next_outgoing = random.choice((0, 7, UINT - 20))
        self._delivery = self._next_outgoing
        self._next_incoming = 0
        self._arriving: int | None = None
        self._peer_window = 0
        self._waiting: list[tuple[Sender, int, bytes, dict[str, Any]]] = []
        self._remote: dict[int, Link] = {}
        self._by_name: dict[tuple[str, bool], Link] = {}
        self._in = bytearray()
        self._heard_us = schedule.now_us
        self._heartbeat_ms = 0
        self._beats_from_us = 0
        self._handles = 0
        self._greeted = False
        self._after_login = bytearray()
        self._login = None if credentials is None else SaslClient(credentials, "node")
        self.wire = node.connect(self, weather, user, address)
        if self.wire is None:
            return
        self.alive = True
        if self._login is None:
            self._greet()
        else:
            self._send(self._login.take_output())
        self._watch()

    def _greet(self) -> None:
        """Send everything that needs no answer at once: the header, `open` and `begin`."""
        properties = {
            "container_id": self.container,
            "hostname": "node",
            "max_frame_size": UInt(self.frame_bytes + 512),
            "idle_time_out": UInt(self._silence_ms),
        }
        self.write(
            AMQP_HEADER
            + frame_of("open", **properties)
            + frame_of(
                "begin",
                next_outgoing_id=UInt(self._next_outgoing),
                incoming_window=UInt(self._window),
                outgoing_window=UInt(1 << 20),
            )
        )

    # -- what its user does

    def attach_sender(self, name: str, address: str | None, **options: Any) -> Sender:
        """A link to a target."""
        fields, callbacks = _split(options)
        second = fields.get("rcv_settle_mode") == 1
        link = Sender(self, name, self._handle(), second=second, **callbacks)
        self._attach(link, role=False, address=address, fields=fields | {"initial_delivery_count": UInt(0)})
        return link

    def attach_receiver(self, name: str, address: str | None, **options: Any) -> Receiver:
        """A link from a source; without an address, a null source.

        `source`: further fields of it, by the standard's names.
        """
        fields, callbacks = _split(options)
        second = fields.get("rcv_settle_mode") == 1
        link = Receiver(self, name, self._handle(), second=second, **callbacks)
        self._attach(link, role=True, address=address, fields=fields)
        return link

    def close(self) -> None:
        """Close the connection in order."""
        if self.alive:
            self.write(frame_of("close"))
            wire = self.wire
            self.schedule.after(50 * MS, lambda: wire.reset() if wire is not None else None)

    def drop(self) -> None:
        """Go without a word."""
        if self.wire is not None:
            self.wire.reset()

    # -- bytes

    def write(self, data: bytes) -> None:
        """Send bytes, those of the time during the login after it."""
        if self._login is not None and not self._login.done:
            self._after_login += data
        else:
            self._send(data)

    def _send(self, data: bytes) -> None:
        if self.alive and self.wire is not None:
            self.wire.send(data)

    def transfer(self, link: Sender, number: int, payload: bytes, **flags: Any) -> None:
        """Send a transfer, when the session's window has room for it. `flags`: see `transfer_frame`."""
        if not link.alive:
            return
        if self._peer_window <= 0 or self._waiting:
            self._waiting.append((link, number, payload, flags))
            return
        self._peer_window -= 1
        self._next_outgoing = after(self._next_outgoing)
        self.write(transfer_frame(link.handle, number, payload, **flags))

    def next_delivery(self) -> int:
        """The id of the next delivery that this client sends."""
        number, self._delivery = self._delivery, after(self._delivery)
        return number

    def arrives(self, number: int) -> None:
        """A delivery of the node begins."""
        assert self._arriving is None or number == after(self._arriving), "delivery-ids count up by one"
        self._arriving = number

    def write_flow(self, link: Receiver | None = None, *, drain: bool = False, echo: bool = False) -> None:
        """Send the state of the session and of this link."""
        fields: dict[str, object] = {
            "next_incoming_id": UInt(self._next_incoming),
            "incoming_window": UInt(self._window_left),
            "next_outgoing_id": UInt(self._next_outgoing),
            "outgoing_window": UInt(1 << 20),
        }
        if link is not None:
            fields |= {
                "handle": UInt(link.handle),
                "delivery_count": UInt(link.count),
                "link_credit": UInt(link.credit),
                "drain": drain,
                "echo": echo,
            }
        self.write(frame_of("flow", **fields))

    def input(self, data: bytes) -> None:
        """See `network.Peer`."""
        if not self.alive:
            return
        self._heard_us = self.schedule.now_us
        if self._login is not None and not self._login.done:
            data = self._log_in(self._login, data)
        self._in += data
        if not self._greeted:
            if len(self._in) < len(AMQP_HEADER):
                return
            assert self._in.startswith(AMQP_HEADER), bytes(self._in[:8])
            del self._in[: len(AMQP_HEADER)]
            self._greeted = True
        block, at = bytes(self._in), 0
        while self.alive and (found := read_frame(block, at)) is not None:
            one, at = found
            assert len(one.body) <= self.frame_bytes + 512, "no frame is larger than max-frame-size"
            if one.body:
                said = read_performative(one.body)
                self._take(said.name, said.fields, said.payload)
        del self._in[:at]

    def _log_in(self, login: SaslClient, data: bytes) -> bytes:
        """Continue the login. Returns the bytes after it."""
        try:
            login.receive(data)
        except (AuthenticationError, ConnectError) as error:
            if isinstance(error, AuthenticationError):
                self.refused(str(error))
            self.drop()
            self._end(None)
            return b""
        self._send(login.take_output())
        if not login.done:
            return b""
        self._greet()
        self._send(bytes(self._after_login))
        return login.rest

    def lost(self) -> None:
        """See `network.Peer`."""
        self._end(None)

    # -- inside

    def _handle(self) -> int:
        self._handles += 1
        return self._handles - 1

    def _attach(self, link: Link, *, role: bool, address: str | None, fields: dict[str, Any]) -> None:
        self.links[link.handle] = link
        self._by_name[link.name, role] = link
        source: dict[str, Value] = {"address": address} if role else {}
        target: dict[str, Value] = {} if role else {"address": address}
        source |= fields.pop("source", {})
        target |= fields.pop("target", {})
        if properties := fields.pop("properties", None):
            fields["properties"] = {Symbol(key): value for key, value in properties.items()}
        self.write(
            frame_of(
                "attach",
                name=link.name,
                handle=UInt(link.handle),
                role=role,
                source=None if role and address is None else terminus(0x28, source),
                target=terminus(0x29, target),
                **fields,
            )
        )

    def _take(self, name: str, fields: Mapping[str, Any], payload: bytes) -> None:
        match name:
            case "open":
                self.is_open = True
                self.peer_frame_bytes = int(fields["max-frame-size"] or UINT)
                if fields["idle-time-out"]:
                    self._heartbeat_ms = max(int(fields["idle-time-out"]) // 3, 100)
                    self._beats_from_us = self.schedule.now_us
                    self._beat()
                self.opened()
            case "begin":
                self._next_incoming = int(fields["next-outgoing-id"])
                self._peer_window = int(fields["incoming-window"])
            case "attach":
                self._attached(fields)
            case "flow":
                self._flow(fields)
            case "transfer":
                self._next_incoming = after(self._next_incoming)
                self._window_left -= 1
                assert self._window_left >= 0, "transfers stay within the session's window"
                link = self._remote[int(fields["handle"])]
                if isinstance(link, Receiver) and link.alive:
                    link.transfer(fields, payload)
                if self.alive and self._window_left <= self._window // 2:
                    self._window_left = self._window
                    self.write_flow()
            case "disposition":
                self._disposition(fields)
            case "detach":
                self._detached(fields)
            case "end" | "close":
                self._forgive(fields)
                self._end(condition_of(fields) or "closed")

    def _forgive(self, fields: Mapping[str, Any]) -> None:
        """A peer that sends heartbeats is not silent, even if the node does not read them.

        It sends them when it has read the node's open.
        """
        if self.schedule.now_us - self._beats_from_us < 3 * self._heartbeat_ms * MS or not self._heartbeat_ms:
            return
        error = fields.get("error")
        silent = error is not None and "received nothing" in str(error.value[1])
        assert not silent or self.wire is None or self.wire.troubled, "a client that was not silent is closed"

    def _attached(self, fields: Mapping[str, Any]) -> None:
        role = not fields["role"]
        link = self._by_name[str(fields["name"]), role]
        self._remote[int(fields["handle"])] = link
        if isinstance(link, Receiver):
            link.count = int(fields["initial-delivery-count"] or 0)
        link.answered = True
        mine = fields["source" if role else "target"]
        link.refused = mine is None
        if isinstance(link, Sender | Receiver):
            second = fields["rcv-settle-mode"] == 1
            assert link.refused or second == link.second, (
                f"{link.name}: another settle mode than was asked for"
            )
        if not link.refused:
            link.attached(fields)

    def _flow(self, fields: Mapping[str, Any]) -> None:
        begun = fields["next-incoming-id"]
        if begun is not None:
            told = distance(int(begun), self._next_outgoing)
            assert told >= 0, "the node has seen more transfers than were sent"
            self._peer_window = int(fields["incoming-window"]) - told
        waiting, self._waiting = self._waiting, []
        while waiting and self._peer_window > 0:
            link, number, payload, flags = waiting.pop(0)
            self.transfer(link, number, payload, **flags)
        self._waiting = waiting + self._waiting
        if fields["handle"] is not None:
            found = self._remote.get(int(fields["handle"]))
            if found is not None and found.alive and isinstance(found, Sender | Receiver):
                found.flow(fields)
        elif fields["echo"] is True:
            self.write_flow()

    def _disposition(self, fields: Mapping[str, Any]) -> None:
        first = int(fields["first"])
        last = first if fields["last"] is None else int(fields["last"])
        state = fields["state"]
        outcome = OUTCOMES.get(int(str(state.descriptor))) if isinstance(state, Described) else None
        condition, info = error_of(state.value) if outcome == "rejected" else (None, {})
        number = first
        assert 0 <= distance(first, last) < 1 << 20, "a disposition of deliveries in order"
        while distance(number, last) >= 0:
            if fields["role"]:  # the node as receiver
                link = self.sent.get(number)
                if link is not None:
                    if fields["settled"] or (outcome and link.second):
                        del self.sent[number]
                        link.unsettled.pop(number, None)
                    if not fields["settled"] and outcome and link.second:
                        self.write(
                            disposition_frame(
                                receiver=False, first=number, last=number, settled=True, state=None
                            )
                        )
                    if link.alive:
                        link.info = info
                        link.outcome(number, outcome, condition)
            else:
                receiver = self.came.pop(number, None)
                if receiver is not None:
                    receiver.unsettled.pop(number, None)
                    if receiver.alive:
                        receiver.settled_by_node(number)
            number = after(number)

    def _detached(self, fields: Mapping[str, Any]) -> None:
        link = self._remote.pop(int(fields["handle"]), None)
        if link is None:
            return
        assert self._may_hoard or "large messages are unfinished" not in description_of(fields), (
            f"{link.name} pays for the unfinished messages of another user"
        )
        if not link.detaching:
            self.write(frame_of("detach", handle=UInt(link.handle), closed=True))
        self.links.pop(link.handle, None)
        if self._by_name.get((link.name, isinstance(link, Receiver))) is link:
            del self._by_name[link.name, isinstance(link, Receiver)]
        for table in (self.sent, self.came):
            for number in [number for number, owner in table.items() if owner is link]:
                del table[number]
        self._waiting = [each for each in self._waiting if each[0] is not link]
        link.end(None if link.detaching and not condition_of(fields) else condition_of(fields) or "closed")

    def _beat(self) -> None:
        if self.alive:
            self.write(EMPTY_FRAME)
            self.schedule.after(self._heartbeat_ms * MS, self._beat)

    def _watch(self) -> None:
        """End a connection whose node sends nothing."""
        if not self.alive:
            return
        reads = self.wire is not None and self.wire.client_reads
        if reads and self.schedule.now_us - self._heard_us > 2 * self._silence_ms * MS:
            self.drop()
            self._end(None)
            return
        self.schedule.after(self._silence_ms * MS, self._watch)

    def _end(self, condition: str | None) -> None:
        if not self.alive:
            return
        self.alive = False
        if self.wire is not None:
            self._node.forget(self.wire)
            if condition is not None:
                self.wire.reset()
        for link in list(self.links.values()):
            link.end(None)
        self.ended(condition)


def _split(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    known = {"attached", "ended", "credited", "outcome", "delivered", "drained", "settled_by_node"}
    callbacks = {"attached": lambda fields: None, "ended": lambda condition: None}
    callbacks |= {key: value for key, value in options.items() if key in known}
    return {key: value for key, value in options.items() if key not in known}, callbacks
