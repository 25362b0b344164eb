"""Flow frames that Proton does not send by itself.

Answers to `echo` (AMQP 2.7.4), and to a drain without credit (2.6.7).

Proton is asked for a flow of the session, which has the exact transfer numbers at this point of the output.
The flows of links are built from it and follow it.
"""

from collections.abc import Iterable
from typing import Any, Final

from amqp_streams.proton import links
from amqp_streams.proton.engine import Engine
from amqp_streams.proton.pointers import Pointer
from amqp_streams.server.links.link import AnyLink, IncomingLink, OutgoingLink
from amqp_streams.wire.frames import Frame, flow_frame, read_frames, read_performative
from amqp_streams.wire.types import UInt

_UINT: Final = (1 << 32) - 1


class Flows:
    """The flow frames that the node owes to one connection."""

    __slots__ = ("_engine", "_owed")

    def __init__(self, engine: Engine) -> None:
        self._engine: Final = engine
        self._owed: dict[OutgoingLink[Any], None] = {}

    def owe(self, link: OutgoingLink[Any]) -> None:
        """Note that the client waits for the state of this link."""
        if link.handle is not None:
            self._owed[link] = None

    def echo(self, attached: Iterable[AnyLink]) -> None:
        """Answer a flow frame that has `echo` set.

        Proton does not report which link the frame concerns, so the state of all links and sessions of the
        connection is sent.
        """
        for link in attached:
            if not link.alive or link.closing:
                continue
            if isinstance(link, OutgoingLink):
                self.owe(link)
            elif isinstance(link, IncomingLink):
                self._engine.ask_session_flow(link.session)
                links.grant(link.pointer, 0)
                # Written for each link: if no credit has changed, Proton writes one flow frame for the
                # session, with the state of one link only.
                self._engine.write()
        for session in self._engine.sessions():
            self._engine.ask_session_flow(session)

    def write(self) -> bytes:
        """Return the owed flow frames.

        A link that still has deliveries in Proton's output is not included: its flow must follow them.
        """
        if not self._owed:
            return b""
        owed = [link for link in self._owed if link.alive and not link.closing]
        self._owed = {link: None for link in owed if links.queued(link.pointer)}
        output = b""
        for session, waiting in _by_session(link for link in owed if link not in self._owed).items():
            self._engine.ask_session_flow(session)
            written = self._engine.pull()
            output += written
            state = _session_flow(written)
            if state is not None:
                output += b"".join(_link_flow(state, link) for link in waiting)
        return output


def _by_session(owed: Iterable[OutgoingLink[Any]]) -> dict[Pointer, list[OutgoingLink[Any]]]:
    sessions: dict[Pointer, list[OutgoingLink[Any]]] = {}
    for link in owed:
        sessions.setdefault(link.session, []).append(link)
    return sessions


def _session_flow(written: bytes) -> Frame | None:
    """Return the last flow frame of a session in these bytes."""
    # Only the last one has the state after everything that was written before it.
    for frame in reversed(list(read_frames(written))):
        if (
            frame.body
            and (found := read_performative(frame.body)).name == "flow"
            and found.fields["handle"] is None
        ):
            return frame
    return None


def _link_flow(state: Frame, link: OutgoingLink[Any]) -> bytes:
    """Return the flow frame of a link, with the session's numbers from `state`."""
    fields = {
        name: int(value)
        for name, value in read_performative(state.body).fields.items()
        if isinstance(value, UInt)
    }
    return flow_frame(
        state.channel,
        next_incoming_id=fields.get("next-incoming-id"),
        incoming_window=fields["incoming-window"],
        next_outgoing_id=fields["next-outgoing-id"],
        outgoing_window=fields["outgoing-window"],
        handle=link.handle,
        delivery_count=link.delivery_count & _UINT,
        link_credit=max(0, links.credit(link.pointer)),
        drain=links.wants_drain(link.pointer),
    )
