"""[io] The connection to one home address: made when a report is sent, and made again when it is lost.

Laws: at most one report for each bucket waits for the connection; a newer one replaces it. After a failure,
the next attempt begins after a pause that grows. A reason is logged once, and again only after the node was
reached.
"""

import asyncio
import ssl
from collections.abc import Callable
from random import uniform
from typing import Final, Protocol

import structlog

from amqp_streams.homes.messages import Answer, Asked, Description, Inquiry, Outcome, Report
from amqp_streams.homes.protocol.dialogue import CHANGES, INQUIRIES, Role
from amqp_streams.homes.protocol.parts import Unfinished
from amqp_streams.server.homes.peer_connection import MakeDialogue, Message, PeerConnection, not_secure
from service_parts.networks import is_this_machine
from service_parts.settings.listeners import Listener as Address

CONNECT_S: Final = 5.0
"""For the name, TCP and TLS."""
RETRY_S: Final = 0.1
"""The first pause. Each is twice as long as the pause before."""
RETRY_MAX_S: Final = 2.0
"""The longest pause: a home decides again 3 s after its node was lost."""
STEADY_S: Final = 5.0
"""A connection that lasted so long makes the next pause the first, and reasons may be logged again."""
UNUSED_S: Final = 30.0
"""A connection without reports for this long is closed."""
REASONS_MAX: Final = 8
"""Reasons that are logged until the node was reached."""

log = structlog.get_logger("amqp_streams.server")


class Questions(Protocol):
    """What becomes of the questions of this node: see `Asking`."""

    def sent(self, number: int) -> None:
        """The question was given to the connection."""

    def answered(self, address: str, result: Outcome) -> None:
        """The node at this address has answered."""

    def lost(self, address: str, number: int) -> None:
        """The connection on which the question was sent has ended."""

    def not_taken(self, address: str, number: int) -> None:
        """The node at this address takes no questions."""


class Inquiries(Protocol):
    """What becomes of the inquiries of this node: see `Inquiring`."""

    def answered(self, address: str, description: Description) -> None:
        """The node at this address has answered."""

    def lost(self, address: str, number: int) -> None:
        """The connection on which the inquiry was sent has ended."""

    def not_taken(self, address: str, number: int) -> None:
        """The node at this address takes no inquiries."""


class Call:
    """`context`: the TLS context for the next connection; None: without TLS.

    `certificate_name`: what the certificate of the other node must name; None: the host of `address`.
    """

    def __init__(
        self,
        address: str,
        *,
        context: Callable[[], ssl.SSLContext | None],
        make_dialogue: MakeDialogue,
        on_answer: Callable[[Answer], None],
        questions: Questions,
        inquiries: Inquiries,
        unfinished: Unfinished,
        inquired: Unfinished,
        certificate_name: str | None = None,
    ) -> None:
        self.address: Final = address
        self.problem: str | None = None
        """Why the node is not reached, in words; None: it is, or the first attempt runs.

        After a failure it stays until a connection has lasted for `STEADY_S`.
        """
        self._context: Final = context
        self._make_dialogue: Final = make_dialogue
        self._on_answer: Final = on_answer
        self._questions: Final = questions
        self._inquiries: Final = inquiries
        self._unfinished: Final = unfinished
        self._inquired: Final = inquired
        self._certificate_name: Final = certificate_name
        self._loop: Final = asyncio.get_running_loop()
        self.used_at = self._loop.time()
        self._waiting: Final[dict[int, Report]] = {}
        self._asked: Final[dict[int, Asked]] = {}
        """Questions that wait for the connection, by number."""
        self._sent: set[int] = set()
        """The numbers of those that were sent on it and are not answered."""
        self._unsent: Final[dict[int, Inquiry]] = {}
        """Inquiries that wait for the connection, by number."""
        self._sent_inquiries: set[int] = set()
        self._connection: PeerConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._opened_at = 0.0
        self._retry_at = 0.0
        self._pause_s = RETRY_S
        self._said: Final[set[str]] = set()
        self._reached = False
        """Whether the last log line says that the node was reached."""
        self._closed = False

    @property
    def open(self) -> bool:
        """Whether the node is connected, and has proved that it is one."""
        return self._connection is not None and self._connection.open

    @property
    def unused(self) -> bool:
        """Whether no report was sent for a long time."""
        return self._loop.time() - self.used_at > UNUSED_S

    @property
    def waiting(self) -> int:
        """How many reports wait for the connection."""
        return len(self._waiting)

    def send(self, report: Report) -> None:
        """Send a report soon."""
        self.used_at = self._loop.time()
        if self._connection is not None and self._connection.open:
            self._connection.post(report)
            return
        self._waiting[report.bucket] = report
        self._connect()

    def ask(self, asked: Asked) -> None:
        """Ask a question, when the node is reached."""
        self.used_at = self._loop.time()
        self._asked[asked.number] = asked
        if self._connection is not None and self._connection.open:
            self._ask(self._connection)
        else:
            self._connect()

    def forget(self, number: int) -> None:
        """The answer is not needed any more."""
        self._asked.pop(number, None)
        self._sent.discard(number)

    def inquire(self, inquiry: Inquiry) -> None:
        """Send an inquiry, when the node is reached."""
        self.used_at = self._loop.time()
        self._unsent[inquiry.number] = inquiry
        if self._connection is not None and self._connection.open:
            self._inquire(self._connection)
        else:
            self._connect()

    def forget_inquiry(self, number: int) -> None:
        """The answer is not needed any more."""
        self._unsent.pop(number, None)
        self._sent_inquiries.discard(number)

    def _inquire(self, connection: PeerConnection) -> None:
        while self._unsent:
            number = next(iter(self._unsent))
            inquiry = self._unsent.pop(number)
            if connection.takes(INQUIRIES):
                self._sent_inquiries.add(number)
                connection.inquire(inquiry)
            else:
                self._inquiries.not_taken(self.address, number)

    def _ask(self, connection: PeerConnection) -> None:
        while self._asked:
            number, asked = self._asked.popitem()
            if connection.takes(CHANGES):
                self._sent.add(number)
                self._questions.sent(number)
                connection.say(asked)
            else:
                self._questions.not_taken(self.address, number)

    def tick(self, elapsed_s: float) -> None:
        """Called several times a second."""
        if self._connection is not None:
            self._connection.tick(elapsed_s)
            if self._opened_at and self._loop.time() - self._opened_at > STEADY_S:
                self._pause_s = RETRY_S
                self._said.clear()
                self._note_reached(self._connection)
        elif self._waiting or self._asked or self._unsent:
            self._connect()

    def stop(self) -> None:
        """End the connection."""
        self._closed = True
        self._waiting.clear()
        self._asked.clear()
        self._unsent.clear()
        if self._connection is not None:
            self._connection.abort()
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """End the connection, and wait until nothing runs any more."""
        self.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        # The transport says in the next iteration that it is lost.
        await asyncio.sleep(0)

    def _connect(self) -> None:
        idle = self._task is None and self._connection is None
        if idle and not self._closed and self._loop.time() >= self._retry_at:
            self._task = self._loop.create_task(self._try())

    async def _try(self) -> None:
        # Here and not later: the connection can end before this coroutine continues.
        connection = self._connection = PeerConnection(
            Role.CALLER,
            self._make_dialogue,
            secure=(context := self._context()) is not None,
            unfinished=self._unfinished,
            inquired=self._inquired,
            on_open=self._opened,
            on_message=self._took,
            on_end=self._ended,
        )
        try:
            address = Address.parse(self.address)
            if context is None and not is_this_machine(address.host):
                raise not_secure(address.host)
            async with asyncio.timeout(CONNECT_S):
                await self._loop.create_connection(
                    lambda: connection,
                    address.host,
                    address.port,
                    ssl=context,
                    server_hostname=None if context is None else self._certificate_name or address.host,
                )
        except (OSError, ValueError) as error:  # TimeoutError and ssl.SSLError are OSErrors
            self._ended(connection, error)
        finally:
            self._task = None
            if self._closed:
                connection.abort()

    def _opened(self, connection: PeerConnection) -> None:
        self._opened_at = self._loop.time()
        # After a failure, only a connection that lasts is news.
        if not self._said:
            self._note_reached(connection)
        for report in self._waiting.values():
            connection.post(report)
        self._waiting.clear()
        self._ask(connection)
        self._inquire(connection)

    def _note_reached(self, connection: PeerConnection) -> None:
        self.problem = None
        if not self._reached:
            self._reached = True
            log.info("node_reached", address=self.address, process=connection.process)

    def _took(self, _connection: PeerConnection, message: Message) -> None:
        if isinstance(message, Outcome):
            self._sent.discard(message.number)
            self._questions.answered(self.address, message)
            return
        if isinstance(message, Description):
            self._sent_inquiries.discard(message.number)
            self._inquiries.answered(self.address, message)
            return
        assert isinstance(message, Answer), "what a caller reads besides are answers"
        self._on_answer(message)

    def _ended(self, connection: PeerConnection, reason: Exception) -> None:
        if self._connection is not connection:
            return
        opened_at, self._connection, self._opened_at = self._opened_at, None, 0.0
        sent, self._sent = self._sent, set()
        inquired, self._sent_inquiries = self._sent_inquiries, set()
        for number in sent:
            self._questions.lost(self.address, number)
        for number in inquired:
            self._inquiries.lost(self.address, number)
        if self._closed:
            return
        if opened_at and self._loop.time() - opened_at > STEADY_S and isinstance(reason, OSError):
            # As when the other node stops. If it is away, the next attempt says so.
            self._reached = False
            log.info("node_lost", address=self.address, reason=words(reason))
            return
        self._retry_at = self._loop.time() + self._pause_s * uniform(0.5, 1.0)  # noqa: S311  (no secret)
        self._pause_s = min(RETRY_MAX_S, 2 * self._pause_s)
        self.problem = words(reason)
        if self.problem not in self._said and len(self._said) < REASONS_MAX:
            self._said.add(self.problem)
            self._reached = False
            log.warning("node_not_reached", address=self.address, reason=self.problem)


def words(reason: Exception) -> str:
    """Why a connection between nodes ended."""
    if isinstance(reason, TimeoutError) and not str(reason):
        return f"no answer in {CONNECT_S:.0f} s"
    return str(reason) or type(reason).__name__
