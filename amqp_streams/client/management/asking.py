"""Questions to `$management` over one pair of links that stays: for those who ask often. Only questions: they
may be asked again.

Law: whoever waits hears of an answer, a refusal, or the end of the links, once.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from amqp_streams import names
from amqp_streams.client.connection.pool import Pool
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
    """The two links on one connection."""

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
        """Nothing has ended."""
        return not (self._incoming.ended.done() or self._outgoing.ended.done())

    async def open(self) -> None:
        """Until both are attached."""
        try:
            await self._incoming.wait()
            self._incoming.link.grant(_CREDIT)
            self.wire.flush_soon()
            await self._outgoing.wait()
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
            return await answer
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
        """An answer that cannot be read, or that nobody waits for, is passed over."""
        try:
            answer = self._waiting.get(str(reply.correlation_id))
        except AmqpStreamsError:
            return
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
        self._room.set()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ended.result())


class Asker:
    """Asks on the connection that there is, with links that are made when they are first needed."""

    def __init__(self, pool: Pool) -> None:
        self._pool: Final = pool
        self._line: _Line | None = None
        self._opening: Final = asyncio.Lock()

    async def ask(self, operation: str, body: Mapping[str, object]) -> dict[str, object]:
        """The body of the answer; asked again on the next connection when this one is lost.

        Raises:
            ManagementError: the status is not 2xx.
            LinkRefusedError: the node has no `$management`, or not for us.
            ConnectionLostError: it could not be made again.
        """
        while True:
            wire = await self._pool.question_wire()
            try:
                return await (await self._on(wire)).ask(operation, body)
            except ConnectionLostError:
                continue

    async def _on(self, wire: Wire) -> _Line:
        async with self._opening:
            line = self._line
            if line is None or line.wire is not wire or not line.usable:
                if line is not None:
                    line.close()
                line = _Line(wire)
                await line.open()
                self._line = line
            return line
