"""An AMQP client that obeys only where it wants to: Proton's engine on a blocking socket.

It sends nothing by itself between two calls, so it can hold what it has got, stay silent, or stop reading.
"""

import select
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self

import proton

from amqp_streams import names
from amqp_streams.client.connection.mechanisms import Credentials
from amqp_streams.client.connection.sasl import SaslClient

ANSWER_S_MAX: Final = 60.0
READ_BYTES: Final = 256 << 10


class Peer:
    """One connection. Links and sessions are Proton's own objects; `pump` lets both sides speak."""

    def __init__(
        self,
        address: str,
        credentials: Credentials | None = None,
        *,
        container: str = "attacker",
        tls: ssl.SSLContext | None = None,
        frame_bytes: int | None = None,
        channels: int = 65_535,
        source: str = "127.0.0.1",
    ) -> None:
        host, _, port = address.rpartition(":")
        self.socket: socket.socket = socket.create_connection(
            (host, int(port)), timeout=ANSWER_S_MAX, source_address=(source, 0)
        )
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        try:
            rest = _logged_in(self.socket, credentials) if credentials is not None else b""
        except BaseException:
            self.socket.close()
            raise
        self.collector: Final = proton.Collector()
        self.transport: Final = proton.Transport(proton.Transport.CLIENT)
        if frame_bytes is not None:
            self.transport.max_frame_size = frame_bytes
        self.transport.channel_max = channels
        self.connection: Final = proton.Connection()
        self.connection.container = container
        self.connection.collect(self.collector)
        self.transport.bind(self.connection)
        self.connection.open()
        self.is_gone = False
        self._names = 0
        if rest:
            self.transport.push(rest)

    def session(self) -> Any:
        """A new session."""
        session = self.connection.session()
        session.open()
        return session

    def sender(
        self, address: str | None, *, session: Any = None, name: str | None = None, **options: Any
    ) -> Any:
        """A new link to send with; `None`: without a target. `options`: see `_attach`."""
        self._names += 1
        link = (session or self.shared_session).sender(name or f"out-{self._names}")
        if address is not None:
            link.target.address = address
        _attach(link, **options)
        return link

    def receiver(
        self,
        address: str | None,
        *,
        session: Any = None,
        name: str | None = None,
        credit: int = 0,
        durable: bool = False,
        **options: Any,
    ) -> Any:
        """A new link to receive with. `durable`: the node keeps its cursor. `options`: see `_attach`."""
        self._names += 1
        link = (session or self.shared_session).receiver(name or f"in-{self._names}")
        if address is not None:
            link.source.address = address
        if durable:
            link.source.durability = proton.Terminus.DELIVERIES
            link.source.expiry_policy = proton.Terminus.EXPIRE_NEVER
        _attach(link, **options)
        if credit:
            link.flow(credit)
        return link

    @property
    def shared_session(self) -> Any:
        """One session for the links that name none."""
        if not hasattr(self, "_session"):
            self._session = self.session()
        return self._session

    def flush(self) -> None:
        """Send what waits, and read nothing."""
        try:
            while (waiting := self.transport.pending()) > 0:
                sent = self.socket.send(self.transport.peek(waiting) or b"")
                self.transport.pop(sent)
        except (TimeoutError, ConnectionError, OSError):
            self.is_gone = True

    def raw(self, data: bytes) -> None:
        """Send bytes that the engine knows nothing of."""
        self.flush()
        try:
            self.socket.sendall(data)
        except OSError:
            self.is_gone = True

    def request(
        self, links: tuple[Any, Any], operation: str, type_: str, name: str = "", **more: Any
    ) -> tuple[int, Any]:
        """A request to `$management`: status, and the answer's body or its description.

        `more`: `properties` of the request, and entries of its body.
        """
        properties = {"operation": operation, "type": type_, "name": name, **more.pop("properties", {})}
        body: dict[str, Any] = {key.replace("_", "-"): value for key, value in more.items()}
        message = proton.Message(body=body, id=self._names, reply_to="answers", properties=properties)
        answer = self.ask(message, *links)
        found: Any = answer.properties or {}
        told = {str(key): value for key, value in found.items()}
        return int(told["status-code"]), answer.body if answer.body is not None else told[
            "status-description"
        ]

    def pump(self, seconds: float = 0.0) -> None:
        """Send what waits and take what comes within `seconds`; more than one block if it is here."""
        self.flush()
        while not self.is_gone and self._is_readable(seconds):
            try:
                block = self.socket.recv(min(READ_BYTES, max(1, self.transport.capacity())))
            except (TimeoutError, ConnectionError, OSError):
                block = b""
            if not block:
                self.is_gone = True
                return
            try:
                self.transport.push(block)
            except proton.TransportException:
                self.is_gone = True
                return
            self._drop_events()
            self.flush()
            seconds = 0.0

    def until(self, holds: Callable[[], bool], words: str, seconds: float = ANSWER_S_MAX) -> None:
        """Pump until that holds.

        Raises:
            TimeoutError: it does not hold in time, or the node has closed the connection before.
        """
        deadline = time.monotonic() + seconds
        while not holds():
            if self.is_gone or time.monotonic() > deadline:
                why = f"{refusal(self.connection) or ''} {words_of(self.connection)}".strip()
                message = f"{words}: {f'the connection is closed {why}' if self.is_gone else 'not in time'}"
                raise TimeoutError(message)
            self.pump(0.05)

    def refused(self, link: Any, words: str) -> None:
        """Wait until the node has closed a link. Raises TimeoutError."""
        self.until(lambda: refusal(link) is not None, words)

    def credited(self, link: Any) -> None:
        """Wait for credit, or for the refusal of the link. Raises TimeoutError."""
        self.until(lambda: link.credit > 0 or refusal(link) is not None, "neither credit nor a refusal")

    def opened(self) -> Self:
        """Wait for the node's open. Raises TimeoutError."""
        self.until(lambda: not self.connection.state & proton.Endpoint.REMOTE_UNINIT, "no open")
        return self

    def ask(self, message: proton.Message, answers: Any, requests: Any) -> proton.Message:
        """Send a request to `$management` and wait for its answer. Raises TimeoutError."""
        self.until(lambda: requests.credit > 0, "no credit for a request")
        if answers.credit < 1:
            answers.flow(10)
        self._names += 1
        requests.delivery(str(self._names))
        requests.stream(message.encode())
        requests.advance()
        self.until(lambda: _is_whole(answers.current), "no answer to a request")
        return received(answers)

    def management(self) -> tuple[Any, Any]:
        """A link for answers, with the address `answers`, and a link for requests."""
        answers = self.receiver("$management", prepare=_to_answers, credit=10)
        requests = self.sender("$management")
        self.until(lambda: requests.credit > 0 or refusal(requests) is not None, "no link to $management")
        return answers, requests

    def close(self) -> None:
        """Cut the connection without a word."""
        self.is_gone = True
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _is_readable(self, seconds: float) -> bool:
        if isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
            return True
        waiting = select.poll()  # select() has room for 1,024 descriptors
        waiting.register(self.socket, select.POLLIN)
        return bool(waiting.poll(seconds * 1000))

    def _drop_events(self) -> None:
        while self.collector.peek():
            self.collector.pop()


def _attach(
    link: Any,
    *,
    properties: Mapping[str, Any] | None = None,
    partition: int | None = None,
    group: str | None = None,
    filters: Mapping[str, Any] | None = None,
    prepare: Callable[[Any], object] | None = None,
) -> None:
    """Open a link with these link properties, filters of its source, and whatever `prepare` does to it."""
    given = dict(properties or {})
    if partition is not None:
        given[names.PARTITION] = proton.symbol(str(partition))
    if group is not None:
        given[names.CONSUMER_GROUP] = group
    if given:
        link.properties = {proton.symbol(key): value for key, value in given.items()}
    if filters is not None:
        link.source.filter.put_object({proton.symbol(key): value for key, value in filters.items()})
    if prepare is not None:
        prepare(link)
    link.open()


def _to_answers(link: Any) -> None:
    link.target.address = "answers"


def from_earliest() -> dict[str, Any]:
    """Filters of a source that start at the earliest event."""
    name, offset = names.FILTER_DELIVERY_ANNOTATIONS, proton.symbol(names.OFFSET_EARLIEST)
    return {name: proton.Described(proton.symbol(name), {proton.symbol(names.OFFSET): offset})}


def sql(text: str) -> dict[str, Any]:
    """The same with an SQL filter."""
    return from_earliest() | {names.FILTEX_SQL: proton.Described(proton.symbol(names.FILTEX_SQL), text)}


def _is_whole(delivery: Any) -> bool:
    return delivery is not None and not delivery.partial


def send(link: Any, message: bytes, tag: str, *, settled: bool = True) -> Any:
    """Hand one encoded message to the engine; its delivery."""
    delivery = link.delivery(tag)
    link.stream(message)
    link.advance()
    if settled:
        delivery.settle()
    return delivery


def received(link: Any) -> proton.Message:
    """The first message that has come, settled."""
    delivery = link.current
    message = proton.Message()
    message.decode(link.recv(delivery.pending))
    link.advance()
    delivery.settle()
    return message


def refusal(endpoint: Any) -> str | None:
    """The condition with which the node has closed a link, a session or a connection; None: it has not."""
    if not endpoint.state & proton.Endpoint.REMOTE_CLOSED:
        return None
    condition = endpoint.remote_condition
    return "" if condition is None else str(condition.name)


def words_of(endpoint: Any) -> str:
    """The description beside the condition."""
    condition = endpoint.remote_condition
    return "" if condition is None else str(condition.description)


def _logged_in(connection: socket.socket, credentials: Credentials) -> bytes:
    """Log in. What came after it.

    Raises:
        AuthenticationError: refused.
        ConnectError: refused for now, or another protocol.
    """
    sasl = SaslClient(credentials, "localhost")
    while not sasl.done:
        connection.sendall(sasl.take_output())
        block = connection.recv(READ_BYTES)
        if not block:
            message = "the connection ended before the login"
            raise ConnectionError(message)
        sasl.receive(block)
    return sasl.rest
