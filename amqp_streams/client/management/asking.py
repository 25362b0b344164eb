"""Requests to `$management` on one pair of links that stays open: for frequent requests.

Only for requests that change nothing, because a request is repeated after a lost connection. Law: a waiting
call ends exactly once: with the answer, a refusal, or the end of the links.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from amqp_streams import names
from amqp_streams.client.connection.pool import Pool
from amqp_streams.client.connection.silence import answered
from amqp_streams.client.connection.transport import Attachment, Wire
from amqp_streams.client.errors import ConnectionLostError, EndpointError
from amqp_streams.client.events import Event
from amqp_streams.client.management.requests import answer_of
from amqp_streams.client.options import ACCEPTED
from amqp_streams.client.producing.outbox import Entry
from amqp_streams.client.received import ReceivedEvent
from amqp_streams.errors import AmqpStreamsError
from amqp_streams.proton.sending import Sendable

_CREDIT: Final = 100
_TAKEN: Final = 16


class _Line:
    """The two links on one connection: requests go out on one, answers come on the other."""

    def __init__(self, wire: Wire) -> None:
        self.wire: Final = wire
        self._reply_to: Final = f"reply-{uuid4().hex}"
        self._waiting: dict[str, asyncio.Future[dict[str, object]]] = {}
        self._room: Final = asyncio.Event()
        self._incoming: Final[Attachment] = wire.attach_receiver(
            names.MANAGEMENT, self._came, presettled=True, target=self._reply_to, brief=True
        )
        self._outgoing: Final[Attachment] = wire.attach_sender(
            names.MANAGEMENT, self._room.set, self._outcomes, brief=True
        )
        for attachment in (self._incoming, self._outgoing):
            attachment.ended.add_done_callback(self._ended)

    @property
    def usable(self) -> bool:
        """Whether both links are still attached."""
        return not (self._incoming.ended.done() or self._outgoing.ended.done())

    async def open(self) -> None:
        """Wait until both links are attached."""
        try:
            await self._incoming.wait()
            self._incoming.link.grant(_CREDIT)
            self.wire.flush_soon()
            await self._outgoing.wait()
        # Both links or none: a half-open pair would occupy the node's limits.
        except BaseException:
            self.close()
            raise

    async def ask(self, operation: str, body: Mapping[str, object]) -> dict[str, object]:
        identity = uuid4().hex
        properties = {names.OPERATION: operation, names.TYPE: names.LOG_TYPE}
        request = Event(
            dict(body),
            properties=properties,
            message_id=identity,
            correlation_id=identity,
            reply_to=self._reply_to,
        )
        while self._outgoing.link.room() == 0:
            if self._outgoing.ended.done():
                raise self._outgoing.ended.result()
            self._room.clear()
            await self._room.wait()
        answer: asyncio.Future[dict[str, object]] = asyncio.get_running_loop().create_future()
        self._waiting[identity] = answer
        try:
            self._outgoing.link.send([Entry(request, request.encode())])
            self.wire.flush_soon()
            return await answered(self.wire, answer)
        # Also if the call is cancelled: an answer that arrives later finds no call and is ignored.
        finally:
            del self._waiting[identity]

    def close(self) -> None:
        self._outgoing.close()
        self._incoming.close()

    def _came(self) -> None:
        link = self._incoming.link
        while True:
            messages, deliveries, aborted = link.take(_TAKEN)
            if not messages and not aborted:
                return
            link.settle(deliveries, ACCEPTED)
            link.grant(len(messages) + aborted)
            self.wire.flush_soon()
            for message in messages:
                self._answered(ReceivedEvent(message))

    def _answered(self, reply: ReceivedEvent) -> None:
        """Pass an answer to the call that waits for it.

        An answer that is not valid, or that no call waits for, is ignored.
        """
        try:
            answer = self._waiting.get(str(reply.correlation_id))
        except AmqpStreamsError:
            return  # without a correlation-id, no call can be found
        if answer is None or answer.done():
            return
        try:
            answer.set_result(answer_of(reply))
        except AmqpStreamsError as error:
            answer.set_exception(error)

    def _outcomes(self, _accepted: list[Sendable], refused: list[tuple[Sendable, EndpointError]]) -> None:
        for entry, error in refused:
            request: Any = entry
            answer = self._waiting.get(str(request.event.message_id))
            if answer is not None and not answer.done():
                answer.set_exception(error)

    def _ended(self, ended: "asyncio.Future[AmqpStreamsError]") -> None:
        # A call that waits for credit must see that the link has ended.
        self._room.set()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ended.result())


class Asker:
    """Sends requests on the current connection, with links that are opened at the first request."""

    def __init__(self, pool: Pool) -> None:
        self._pool: Final = pool
        self._line: _Line | None = None
        self._opening: Final = asyncio.Lock()

    async def ask(self, operation: str, body: Mapping[str, object]) -> dict[str, object]:
        """Return the body of the answer. If the connection is lost, the request is repeated on the next one.

        Raises:
            ManagementError: the status is not 2xx.
            LinkRefusedError: the node has no `$management`, or the user has no right to use it.
            ConnectionLostError: the client could not reconnect.
        """
        while True:
            wire = await self._pool.question_wire()
            try:
                return await (await self._on(wire)).ask(operation, body)
            except ConnectionLostError:
                # The pool opens a new connection, and raises if it cannot.
                continue

    async def _on(self, wire: Wire) -> _Line:
        # One task opens the links, the others wait for it.
        async with self._opening:
            line = self._line
            if line is None or line.wire is not wire or not line.usable:
                if line is not None:
                    line.close()
                line = _Line(wire)
                await line.open()
                self._line = line
            return line
