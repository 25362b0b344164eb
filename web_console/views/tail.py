"""[io] The live tail of a log, and sending an event.

Law: the tail shows a bounded number of events a second, however many arrive: it attaches again at the end of
the log, and says how many it did not show.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from amqp_streams.client import LATEST, AuthenticationError, ClosedError, Consumer, Event, sql_filter
from amqp_streams.errors import AmqpStreamsError
from web_console.figures.stream import KEEP_ALIVE, server_event
from web_console.sessions.session import Session
from web_console.showing.properties import properties_of
from web_console.showing.words import is_away, sentence
from web_console.views.choosing import FILTER_MAX, FILTER_TOO_LONG
from web_console.views.log import extent_of
from web_console.views.reading import row_of
from web_console.views.requests import console_of, form_of, now_ms, page, root_of
from web_console.views.streams import event_stream

SHOWN_MAX: Final = 50
"""Events in one step of a tail."""
_PAUSE_S: Final = 0.5
_WAIT_S: Final = 15.0
_AGAIN_S: Final = 1.0
_BODY_MAX: Final = 1 << 20


async def show(request: Request, session: Session) -> Response:
    """The page of the tail."""
    log, query = request.path_params["log"], request.query_params
    return page(
        request,
        "tail.html",
        session,
        view="logs",
        tab="tail",
        log=log,
        extent=await extent_of(session, log),
        query={name: query.get(name, "") for name in ("partition", "where")},
    )


async def stream(request: Request, session: Session) -> Response:
    """New events of a log, as server-sent events with rows of a table."""
    log = request.path_params["log"]
    partition = request.query_params.get("partition") or None
    sql = request.query_params.get("where", "").strip()
    rows = _Rows(request, log, counts_skipped=not sql)

    async def events() -> AsyncGenerator[bytes, None]:
        if len(sql) > FILTER_MAX:
            yield server_event("problem", FILTER_TOO_LONG)
            return
        while True:
            try:
                async with session.client.consumer(
                    log,
                    partition=partition,
                    start=LATEST,
                    filters={"where": sql_filter(sql)} if sql else None,
                    credit=SHOWN_MAX,
                    settle="none",
                ) as consumer:
                    yield server_event("open", "")
                    async for part in _until_behind(consumer, rows):
                        request.app.state.touch(request)
                        yield part
            except (AuthenticationError, ClosedError):
                yield server_event("ended", "")
                return
            except AmqpStreamsError as error:
                yield server_event("away" if is_away(error) else "problem", sentence(error))
                if not is_away(error):
                    return
                await asyncio.sleep(_AGAIN_S)

    return event_stream(session, events())


async def _until_behind(consumer: Consumer, rows: "_Rows") -> AsyncIterator[bytes]:
    """Yield what arrives, until more arrives than is shown."""
    while True:
        events = await consumer.receive(SHOWN_MAX, timeout=_WAIT_S)
        if not events:
            yield KEEP_ALIVE
            continue
        yield rows.event(
            [
                (each.partition or "", each.offset or 0, each.timestamp_ms or 0, each.encode())
                for each in events
            ]
        )
        await asyncio.sleep(_PAUSE_S)
        if len(events) == SHOWN_MAX:
            return


class _Rows:
    """The rows of a tail, and how many events it did not show."""

    def __init__(self, request: Request, log: str, *, counts_skipped: bool) -> None:
        self._request: Final = request
        self._log: Final = log
        self._counts_skipped: Final = counts_skipped
        self._after: Final[dict[str, int]] = {}
        self._skipped = 0

    def event(self, events: list[tuple[str, int, int, bytes]]) -> bytes:
        for partition, offset, _, _ in events:
            # With a filter the events between two events may be those that it refuses.
            if self._counts_skipped and partition in self._after:
                self._skipped += max(0, offset - self._after[partition] - 1)
            self._after[partition] = offset
        found = {"rows": [row_of(*each) for each in reversed(events)]}
        html = console_of(self._request).render(
            "event_rows.html", root=root_of(self._request), log=self._log, found=found
        )
        return server_event("rows", {"html": html, "skipped": self._skipped})


# -- sending


async def draft(request: Request, session: Session) -> Response:
    """The form of an event to send."""
    return await _form(request, session, {})


async def send(request: Request, session: Session) -> Response:
    """Send an event."""
    form = form_of(request)
    try:
        event = _event(form)
    except ValueError as error:
        return await _form(request, session, form, problem=str(error))
    log = request.path_params["log"]
    async with session.client.producer(log, partition=form.get("partition") or None, window=1) as producer:
        await producer.send(event, timeout=10)
    return await _form(request, session, form, notice=f"The node has stored the event in {log}.")


def _event(form: Mapping[str, str]) -> Event:
    """Return the event of a form.

    Raises:
        ValueError: a field is not valid.
    """
    content_type = form.get("content_type", "").strip()
    body = form.get("body", "").replace("\r\n", "\n")
    if len(body.encode()) > _BODY_MAX:
        message = "The body is too large: the console sends at most 1 MiB."
        raise ValueError(message)
    if content_type.partition(";")[0].strip().lower().endswith(("/json", "+json")):
        try:
            json.loads(body)
        except (ValueError, RecursionError) as error:
            message = f"The body is not valid JSON: {error}"
            raise ValueError(message) from error
    return Event(
        body.encode(),
        key=form.get("key") or None,
        subject=form.get("subject") or None,
        content_type=content_type or None,
        properties=properties_of(form.get("properties", "")) or None,
        creation_time_ms=now_ms(),
    )


async def _form(
    request: Request, session: Session, form: Mapping[str, str], *, problem: str = "", notice: str = ""
) -> Response:
    log = request.path_params["log"]
    names = ("partition", "key", "subject", "content_type", "properties", "body")
    return page(
        request,
        "send.html",
        session,
        view="logs",
        tab="send",
        log=log,
        extent=await extent_of(session, log),
        form={name: form.get(name, "") for name in names},
        problem=problem,
        notice=notice,
        status=400 if problem else 200,
    )
