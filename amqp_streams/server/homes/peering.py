"""[io] The other nodes: reports go to homes, and the answers of homes come back.

Everything here runs on the event loop's thread. A message can be lost: the next one repeats it. At most one
report for each address and bucket, and one answer for each process and bucket, waits until it can be sent; a
newer one replaces it. A node opens one connection to each home address; the home answers on it.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from secrets import token_bytes
from typing import Final, cast

import structlog

from amqp_streams.errors import ConfigError
from amqp_streams.homes.messages import Answer, Asked, Description, Identity, Inquiry, Outcome, Report
from amqp_streams.homes.protocol import answers, descriptions, reports
from amqp_streams.homes.protocol.dialogue import NONCE_BYTES, Dialogue, RefusedError, Role
from amqp_streams.homes.protocol.frames import FrameError
from amqp_streams.homes.protocol.parts import Unfinished
from amqp_streams.homes.serving import NODES_MAX
from amqp_streams.peering_settings import PeeringSettings
from amqp_streams.server.homes.calling import Call, Inquiries, Questions, words
from amqp_streams.server.homes.credentials import load
from amqp_streams.server.homes.figures import peer_figures
from amqp_streams.server.homes.peer_connection import HELLO_S, Message, PeerConnection
from amqp_streams.server.homes.refusals import Refusals
from amqp_streams.server.limits.logins import peer_network
from amqp_streams.server.listening.sockets import Acceptor, Admission, bind
from amqp_streams.storage.questions import Figure
from service_parts.networks import format_address

TICK_S: Final = 0.05
"""How often `Peers.tick` is called."""
LOOK_S: Final = 0.5
"""How often connections are examined."""
CLOSE_S: Final = 2.0
"""How long connections may take to end after they were cut."""
CONNECTIONS_MAX: Final = NODES_MAX + 64
"""Connections from other nodes: also those that replace a connection that is not closed yet."""
CALLS_MAX: Final = 64
"""Connections to homes. There are at most as many homes as buckets; others are of homes that were."""

TWIN_S: Final = 30.0
"""Homes at the own address that are another process are those of the process before, but not for so long."""

_REFUSED: Final = (FrameError, RefusedError, TimeoutError)

log = structlog.get_logger("amqp_streams.server")


@dataclass(slots=True)
class _Twin:
    """Another process with the address of this one, and when reports for it were made."""

    process: str
    first_s: float
    last_s: float


class Peers:
    """One per process.

    `on_report`: a node reports to a home that is here. `on_answer`: a home answers a report of this node.
    Both are called in a later iteration of the loop, also for messages of this node to itself, which use no
    socket. `on_asked`: another process asks for a change, and gets the outcome by the function. `questions`:
    learns what becomes of the changes that this node asks for. `on_inquiry`, `inquiries`: the same for
    inquiries and their descriptions.
    """

    def __init__(
        self,
        me: Identity,
        settings: PeeringSettings,
        *,
        on_report: Callable[[Report], None],
        on_answer: Callable[[Answer], None],
        on_asked: Callable[[str, Asked, Callable[[Outcome], None]], None],
        questions: Questions,
        on_inquiry: Callable[[str, Inquiry, Callable[[Description], None]], None],
        inquiries: Inquiries,
    ) -> None:
        self._me: Final = me
        self._settings: Final = settings
        self._on_report: Final = on_report
        self._on_answer: Final = on_answer
        self._on_asked: Final = on_asked
        self._questions: Final = questions
        self._on_inquiry: Final = on_inquiry
        self._inquiries: Final = inquiries
        self.reports: Final = Unfinished(reports.UNFINISHED_BYTES_MAX)
        """The reports of other nodes of which parts are missing."""
        self.answers: Final = Unfinished(answers.UNFINISHED_BYTES_MAX)
        # Of their own: descriptions that never end must not cost a report or an answer.
        self._asked_here: Final = Unfinished(descriptions.INQUIRIES_BYTES_MAX)
        self._described: Final = Unfinished(descriptions.UNFINISHED_BYTES_MAX)
        self._credentials = load(settings)
        self._address = ""
        self._acceptors: Final[list[Acceptor]] = []
        self._admission: Final = Admission(CONNECTIONS_MAX)
        self._refusals: Final = Refusals()
        self._called: Final[dict[PeerConnection, None]] = {}
        """Connections from other nodes, also those that have not proved yet."""
        self._nodes: Final[dict[str, PeerConnection]] = {}
        """By process, those that have."""
        self._calls: Final[dict[str, Call]] = {}
        self._looked_at: float | None = None
        self._all_left: Final = asyncio.Event()
        self._all_left.set()
        self._closed = False
        self._twin: _Twin | None = None

    async def open(self) -> None:
        """Listen for other nodes.

        Raises:
            ConfigError: the address cannot be bound.
        """
        for sock in await bind(self._settings.listen):
            self._acceptors.append(
                Acceptor(
                    sock,
                    self._called_connection,
                    enter=self._enter,
                    leave=self._leave,
                    tls=self._listening if self._settings.tls else None,
                    handshake_s=HELLO_S,
                )
            )
        bound = self._acceptors[0].address
        self._address = self._settings.advertise or format_address(self._settings.listen.host, bound.port)
        log.info("listening_for_nodes", address=str(bound), tls=bound.tls, advertised=self._address)

    @property
    def address(self) -> str:
        """Where other nodes reach this node, once it is open: for the record of a home."""
        return self._address

    @property
    def problems(self) -> tuple[str, ...]:
        """Which homes are not reached, in words and in a stable order; empty: all are.

        Programs that connect to this node cannot change it.
        """
        unreached = (
            f"the node at {address} is not reached: {call.problem}"
            for address, call in sorted(self._calls.items())
            if call.problem is not None
        )
        return (*self._twins, *unreached)

    @property
    def refused(self) -> tuple[str, ...]:
        """Which nodes were refused in the last minute, in words. Any program on the network can be one."""
        return self._refusals.lately(asyncio.get_running_loop().time())

    def figures(self) -> Iterator[Figure]:
        """For operators."""
        reached = sum(each.open for each in self._calls.values())
        return peer_figures(len(self._nodes), reached, self.reports, self.answers)

    def send_report(self, address: str, report: Report, home: str = "") -> None:
        """Send a report of this node to the home at this address. `home`: the id of its process, if known."""
        if self._closed:
            return
        if address == self._address:
            if home and home != self._me.process:
                self._at_own_address(home)
                return
            asyncio.get_running_loop().call_soon(self._deliver_report, report)
            return
        self._call(address).send(report)

    def ask(self, address: str, asked: Asked) -> bool:
        """Ask the home at this address for a change. Returns False if the address is this node's own."""
        if self._closed or address == self._address:
            return False
        self._call(address).ask(asked)
        return True

    def forget(self, address: str, number: int) -> None:
        """The outcome of a change is not needed any more."""
        call = self._calls.get(address)
        if call is not None:
            call.forget(number)

    def inquire(self, address: str, inquiry: Inquiry) -> bool:
        """Let the node at this address describe something. False: the address is this node's own."""
        if self._closed or address == self._address:
            return False
        self._call(address).inquire(inquiry)
        return True

    def forget_inquiry(self, address: str, number: int) -> None:
        """The description is not needed any more."""
        call = self._calls.get(address)
        if call is not None:
            call.forget_inquiry(number)

    def unreached(self, address: str) -> str | None:
        """Why the node at this address is not connected, after an attempt."""
        call = self._calls.get(address)
        return None if call is None or call.open else call.problem

    def problem(self, address: str) -> str | None:
        """Why the node at this address is not reached, if it is not."""
        call = self._calls.get(address)
        return None if call is None else call.problem

    def _call(self, address: str) -> Call:
        call = self._calls.pop(address, None)
        if call is None:
            call = self._new_call(address)
        # The last in order is the one that was used last.
        self._calls[address] = call
        return call

    def send_answer(self, process: str, answer: Answer) -> None:
        """Send the answer of a home that is here to the process that reported."""
        if process == self._me.process:
            asyncio.get_running_loop().call_soon(self._deliver_answer, answer)
        elif (connection := self._nodes.get(process)) is not None:
            connection.post(answer)

    def _at_own_address(self, home: str) -> None:
        """Another process is a home at the address of this one: an earlier one, or one that runs."""
        now = asyncio.get_running_loop().time()
        if self._twin is None or self._twin.process != home or now - self._twin.last_s > TWIN_S:
            self._twin = _Twin(home, now, now)
        self._twin.last_s = now

    @property
    def _twins(self) -> Iterator[str]:
        """After a restart, the records of the process before are there until its buckets have new homes."""
        twin = self._twin
        if twin is not None and not self._closed:
            now = asyncio.get_running_loop().time()
            if twin.last_s - twin.first_s > TWIN_S and now - twin.last_s <= TWIN_S:
                yield (
                    f"another node has the address of this one, {self._address}: set node.advertise to an"
                    " address that only this node has"
                )

    def tick(self) -> None:
        """Called each `TICK_S`."""
        now = asyncio.get_running_loop().time()
        if self._looked_at is not None and now - self._looked_at < LOOK_S:
            return
        # What this node did not run, the others could not be heard.
        elapsed_s = 0.0 if self._looked_at is None else min(now - self._looked_at, 2 * LOOK_S)
        self._looked_at = now
        for connection in list(self._called):
            connection.tick(elapsed_s)
        for address, call in list(self._calls.items()):
            if call.unused:
                self._end_call(address)
            else:
                call.tick(elapsed_s)

    def reload(self) -> bool:
        """Read secret and certificates again, for new connections.

        Returns False if a file has an error: it is logged, and what was read before stays.
        """
        try:
            self._credentials = load(self._settings)
        except ConfigError as error:
            log.error("node_credentials_not_reloaded", reason=str(error))
            return False
        return True

    def stop(self) -> None:
        """Accept no more connections. What exists stays, so that the last reports are answered."""
        for acceptor in self._acceptors:
            acceptor.stop()

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        self.stop()
        for connection in list(self._called):
            connection.abort()
        await asyncio.gather(*(call.close() for call in self._calls.values()))
        self._calls.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._all_left.wait(), CLOSE_S)

    # -- connections to homes

    def _new_call(self, address: str) -> Call:
        if len(self._calls) >= CALLS_MAX:
            self._end_call(next(iter(self._calls)))
        return Call(
            address,
            context=lambda: self._credentials.calling,
            make_dialogue=partial(self._dialogue, Role.CALLER),
            on_answer=self._deliver_answer,
            questions=self._questions,
            inquiries=self._inquiries,
            unfinished=self.answers,
            inquired=self._described,
            certificate_name=self._settings.certificate_name,
        )

    def _end_call(self, address: str) -> None:
        self._calls.pop(address).stop()

    # -- connections from other nodes

    def _listening(self) -> ssl.SSLContext:
        context = self._credentials.listening
        assert context is not None, "the settings say that nodes use TLS"
        return context

    def _called_connection(self) -> PeerConnection:
        return PeerConnection(
            Role.CALLED,
            # Its own certificate, whatever the caller presents.
            lambda _certificate: self._dialogue(Role.CALLED, self._credentials.certificate),
            secure=self._settings.tls,
            unfinished=self.reports,
            inquired=self._asked_here,
            on_open=self._opened,
            on_message=self._took,
            on_end=self._ended,
        )

    def _enter(self, protocol: asyncio.BaseProtocol, peer: str) -> bool:
        connection = cast("PeerConnection", protocol)
        if not self._admission.enter(connection, peer=peer, send_away=partial(self._send_away, connection)):
            return False
        self._called[connection] = None
        self._all_left.clear()
        return True

    def _send_away(self, connection: PeerConnection) -> None:
        connection.abort()
        # Its TLS handshake may still be running: then only the acceptor can end it.
        for acceptor in self._acceptors:
            acceptor.give_up(connection)

    def _leave(self, protocol: asyncio.BaseProtocol) -> None:
        connection = cast("PeerConnection", protocol)
        self._admission.leave(connection)
        self._called.pop(connection, None)
        if not self._called:
            self._all_left.set()
        if self._nodes.get(connection.process) is connection:
            del self._nodes[connection.process]

    def _opened(self, connection: PeerConnection) -> None:
        self._admission.opened(connection)
        self._refusals.accepted(peer_network(connection.peer))
        before = self._nodes.get(connection.process)
        self._nodes[connection.process] = connection
        log.info("node_connected", peer=connection.peer, process=connection.process)
        if before is not None:
            before.end(ConnectionError("the node has connected again"))

    def _took(self, connection: PeerConnection, message: Message) -> None:
        if isinstance(message, Asked):
            if not self._closed:
                self._on_asked(connection.process, message, connection.say)
            return
        if isinstance(message, Inquiry):
            if not self._closed:
                self._on_inquiry(connection.process, message, connection.inquire)
            return
        assert isinstance(message, Report), "what a called node reads besides are reports"
        if not self._deliver_report(message):
            connection.end(ConnectionError("the report could not be processed"))

    def _ended(self, connection: PeerConnection, reason: Exception) -> None:
        self._leave(connection)
        if self._closed:
            return
        now, network = asyncio.get_running_loop().time(), peer_network(connection.peer)
        kind = reason.reason if isinstance(reason, RefusedError) else type(reason).__name__
        if connection.process and not isinstance(reason, FrameError):
            log.info(
                "node_disconnected", peer=connection.peer, process=connection.process, reason=words(reason)
            )
        elif not isinstance(reason, _REFUSED):
            # A connection that proved nothing, perhaps of a program that looks for open ports.
            return
        elif self._refusals.add(network, kind, words(reason), now):
            log.warning("node_refused", peer=connection.peer, reason=words(reason))

    # -- both

    def _dialogue(self, role: Role, certificate: bytes) -> Dialogue:
        """`certificate`: of the called node."""
        return Dialogue(
            role, self._me, self._credentials.secrets, token_bytes(NONCE_BYTES), certificate=certificate
        )

    def _deliver_report(self, report: Report) -> bool:
        """Returns False if the home failed: one report does not end the node."""
        try:
            if not self._closed:
                self._on_report(report)
        except Exception:
            log.exception("report_failed", node=report.node, bucket=report.bucket)
            return False
        return True

    def _deliver_answer(self, answer: Answer) -> None:
        try:
            if not self._closed:
                self._on_answer(answer)
        except Exception:
            log.exception("answer_failed", bucket=answer.bucket)
