"""Requests to `<log>/$info` (Event Streams 6) and to `$management`.

Each request has its own links, which last for one answer.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from amqp_streams import names
from amqp_streams.client.connection.silence import answered
from amqp_streams.client.connection.transport import Attachment, Wire
from amqp_streams.client.errors import EndpointError, LinkError, ManagementError
from amqp_streams.client.events import Event
from amqp_streams.client.management.info import LogInfo, PartitionInfo
from amqp_streams.client.options import ACCEPTED
from amqp_streams.client.producing.outbox import Entry
from amqp_streams.client.received import ReceivedEvent
from amqp_streams.log_settings import LOG_SETTINGS
from amqp_streams.proton.sending import Sendable
from amqp_streams.wire.offsets import offset_number

_SUCCESS: Final = range(200, 300)


class _Inbox:
    """A receiving link that waits for one message."""

    def __init__(self, wire: Wire, address: str, target: str | None = None) -> None:
        self._came = asyncio.Event()
        self._attachment: Attachment = wire.attach_receiver(
            address, self._came.set, presettled=True, target=target, brief=True
        )

    async def ready(self) -> None:
        await self._attachment.wait()
        self._attachment.link.grant(1)
        self._attachment.wire.flush_soon()

    async def message(self) -> bytes:
        attachment = self._attachment
        while True:
            messages, deliveries, _ = attachment.link.take(1)
            if messages:
                attachment.link.settle(deliveries, ACCEPTED)
                return bytes(messages[0])
            self._came.clear()
            came = asyncio.ensure_future(self._came.wait())
            try:
                await _first(came, attachment.ended)
            finally:
                came.cancel()
            # After the take above: a message that arrived before the end still counts.
            if attachment.ended.done():
                raise attachment.ended.result()

    def close(self) -> None:
        self._attachment.close()


async def read_info(wire: Wire, log: str) -> LogInfo:
    """Read the state of a log from its `$info` address.

    Raises:
        LinkRefusedError: the log does not exist, or the user has no right to see it.
        ConnectionLostError: the caller may repeat the request on the next connection.
    """
    async with wire.questions:
        inbox = _Inbox(wire, log + names.INFO_SUFFIX)
        try:
            await inbox.ready()
            return log_info(log, ReceivedEvent(await answered(wire, inbox.message())).body)
        finally:
            inbox.close()


class _Looks:
    """Shares `$info` answers of one log: one request at a time.

    Calls during a request share the next request.
    """

    def __init__(self) -> None:
        self.asking: asyncio.Task[LogInfo] | None = None
        self.next: asyncio.Task[LogInfo] | None = None

    async def ask(self, wire: Wire, log: str) -> LogInfo:
        if self.asking is not None:
            # `wait`, not `await`: a failure of that request belongs to its own callers.
            await asyncio.wait({self.asking})
        self.asking, self.next = self.next, None
        try:
            return await read_info(wire, log)
        finally:
            # No call waits, so the object is not needed.
            if self.next is None:
                wire.looks.pop(log, None)


async def shared_info(wire: Wire, log: str) -> LogInfo:
    """Like `read_info`, but calls for the same log share requests.

    A thousand links that attach at once cause one or two.

    The answer is never older than the call.
    """
    looks = wire.looks.setdefault(log, _Looks())
    if looks.next is None:
        looks.next = asyncio.create_task(looks.ask(wire, log))
        looks.next.add_done_callback(_seen)
    # Several calls wait for one request: if one is cancelled, the others continue.
    return await asyncio.shield(looks.next)


def _seen(task: "asyncio.Task[LogInfo]") -> None:
    if not task.cancelled():
        task.exception()  # raised to callers that still wait, if there are any


def log_info(log: str, body: object) -> LogInfo:
    """Convert an answer of `$info`, or the description of a log."""
    if not isinstance(body, dict):
        raise LinkError(names.DECODE_ERROR, "the answer is not a map")
    details: dict[str, Any] = {str(key): value for key, value in body.items()}
    partitions = details.get(names.INFO_PARTITIONS)
    items = getattr(partitions, "items", None) if not isinstance(partitions, list | int) else partitions
    entries = [entry for entry in items if isinstance(entry, dict)] if isinstance(items, list | tuple) else []
    return LogInfo(
        str(details.get(names.INFO_LOG) or details.get(names.NAME) or log),
        tuple(_partition({str(key): value for key, value in entry.items()}) for entry in entries),
        incarnation=_text(details.get(names.INFO_INCARNATION)),
        settings=_settings(details),
        sync=_text(details.get(names.INFO_SYNC)),
        details=details,
    )


def _settings(details: Mapping[str, object]) -> dict[str, int | str]:
    read = {row.field: (_text if row.choices else _number) for row in LOG_SETTINGS if not row.fixed}
    found = {row.field: read[row.field](details.get(row.name)) for row in LOG_SETTINGS if not row.fixed}
    return {field: value for field, value in found.items() if value is not None}


def _partition(entry: Mapping[str, object]) -> PartitionInfo:
    return PartitionInfo(
        str(entry.get(names.INFO_PARTITION)),
        offset_number(entry.get(names.INFO_EARLIEST_OFFSET)),
        offset_number(entry.get(names.INFO_LATEST_OFFSET)),
        event_count=_number(entry.get(names.INFO_EVENTS)),
        bytes=_number(entry.get(names.INFO_BYTES)),
        first_timestamp_ms=_number(entry.get(names.INFO_FIRST_TIMESTAMP)),
        last_timestamp_ms=_number(entry.get(names.INFO_LAST_TIMESTAMP)),
        state=_text(entry.get(names.INFO_STATE)),
        gaps=entry.get(names.INFO_GAPS) is True,
    )


def _text(value: object) -> str | None:
    return str(value) if isinstance(value, str) else None


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


async def manage(
    wire: Wire,
    operation: str,
    name: str | None,
    body: Mapping[str, object],
    *,
    type_: str = names.LOG_TYPE,
    log: str | None = None,
    offset: int | None = None,
    count: int | None = None,
) -> dict[str, object]:
    """Send one `$management` request and return the body of the answer.

    `log`: the log of the object, unless it is itself a log. `offset`, `count`: for QUERY, the index in
    the list where the answer begins, and the most items of the answer.

    Raises:
        ManagementError: the status is not 2xx.
        LinkRefusedError: the node has no `$management`, or the user has no right to use it.
        ConnectionLostError: it is unknown whether the node carried out the request.
    """
    async with wire.questions:
        page = {names.QUERY_OFFSET: offset, names.QUERY_COUNT: count}
        return await _manage(wire, operation, name, body, type_=type_, log=log, page=page)


async def _manage(
    wire: Wire,
    operation: str,
    name: str | None,
    body: Mapping[str, object],
    *,
    type_: str,
    log: str | None,
    page: Mapping[str, int | None],
) -> dict[str, object]:
    reply_to, message_id = f"reply-{uuid4().hex}", uuid4().hex
    inbox = _Inbox(wire, names.MANAGEMENT, reply_to)
    refusal: asyncio.Future[EndpointError] = asyncio.get_running_loop().create_future()

    def on_outcomes(_accepted: list[Sendable], refused: list[tuple[Sendable, EndpointError]]) -> None:
        if refused and not refusal.done():
            refusal.set_result(refused[0][1])

    credit = asyncio.Event()
    outgoing = wire.attach_sender(names.MANAGEMENT, credit.set, on_outcomes, brief=True)
    try:
        await inbox.ready()
        await outgoing.wait()
        given = {
            names.OPERATION: operation,
            names.TYPE: type_,
            names.NAME: name,
            names.INFO_LOG: log,
            **page,
        }
        properties = {key: value for key, value in given.items() if value is not None}
        request = Event(
            dict(body),
            properties=properties,
            message_id=message_id,
            correlation_id=message_id,
            reply_to=reply_to,
        )
        while outgoing.link.room() == 0:
            if outgoing.ended.done():
                raise outgoing.ended.result()
            credit.clear()
            await _first(asyncio.ensure_future(credit.wait()), outgoing.ended)
        outgoing.link.send([Entry(request, request.encode())])
        wire.flush_soon()
        answering = asyncio.ensure_future(inbox.message())
        # The node may reject the request itself: then no answer follows.
        await _first(answering, refusal)
        if not answering.done() and refusal.done():
            answering.cancel()
            raise refusal.result()
        return answer_of(ReceivedEvent(await answering))
    finally:
        outgoing.close()
        inbox.close()


async def _first(ours: "asyncio.Future[Any]", other: "asyncio.Future[Any]") -> None:
    try:
        await asyncio.wait([ours, other], return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        ours.cancel()
        raise


def answer_of(reply: ReceivedEvent) -> dict[str, object]:
    """Return the body of an answer.

    Raises:
        ManagementError: the status is not 2xx.
    """
    status = next(
        (_number(reply.properties.get(key)) for key in names.STATUS_CODES if key in reply.properties), None
    )
    if status is None or status not in _SUCCESS:
        description = next(
            (
                _text(reply.properties.get(key))
                for key in names.STATUS_DESCRIPTIONS
                if key in reply.properties
            ),
            None,
        )
        raise ManagementError(status or 500, description or "")
    body = reply.body
    return {str(key): value for key, value in body.items()} if isinstance(body, dict) else {}
