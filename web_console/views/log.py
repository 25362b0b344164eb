"""[io] One log: its partitions with live figures, its events, and one event."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from amqp_streams import names
from amqp_streams.client import LinkRefusedError, LogExtent, PartitionExtent
from amqp_streams.errors import AmqpStreamsError, WireError
from service_parts.shares import Shares
from web_console.figures.rates import skew
from web_console.figures.watching import Watcher
from web_console.sessions.schemas import by_avro
from web_console.sessions.session import Session
from web_console.showing import numbers
from web_console.showing.avro.values import FORMS, VALUES_MAX
from web_console.showing.browsing import PARTITIONS_MAX
from web_console.showing.decoding import body_bytes, shown
from web_console.showing.snippets import as_command, as_python
from web_console.showing.words import pointer
from web_console.views import reading
from web_console.views.choosing import FILTER_MAX, FILTER_TOO_LONG, POSITION, read_chosen, without_position
from web_console.views.logs import bytes_of, events_of, live
from web_console.views.reading import Message, read_event, read_page
from web_console.views.requests import console_of, form_of, now_ms, page

_MISSED_MAX: Final = 3
"""After so many readings without the log in a row, it does not exist any more."""
_DOWNLOAD_S: Final = 120.0
_CHUNK_BYTES: Final = 64 << 10
_downloads: Final = Shares(4)


async def show(request: Request, session: Session) -> Response:
    """The partitions of a log, with their figures."""
    name = request.path_params["log"]
    info = await session.client.management.describe_log(name, timeout=10)
    extent = await extent_of(session, name)
    return page(
        request,
        "log.html",
        session,
        view="logs",
        tab="partitions",
        log=name,
        info=info,
        kept=numbers.kept(info.retention_ms, info.retention_bytes),
        extent=extent,
        figures=_totals(extent),
    )


async def extent_of(session: Session, log: str) -> LogExtent:
    """Return where the partitions of a log begin and end.

    Raises:
        HTTPException: the log does not exist, or the node names it otherwise.
    """
    found = (await session.client.extents(log, timeout=10)).get(log)
    if found is None:
        raise HTTPException(404, "This log does not exist.")
    return found


async def figures(request: Request, session: Session) -> Response:
    """Live figures of a log and its partitions, as server-sent events."""
    log = request.path_params["log"]

    missed = 0

    def read(watcher: Watcher) -> object:
        nonlocal missed
        extent = watcher.latest.extents.get(log)
        if extent is None:
            # The first reading may have begun before this page was opened.
            missed += 1
            return {} if missed < _MISSED_MAX else None
        missed = 0
        history = watcher.history(log)
        now = now_ms()
        latest = history.rates[-1][0] if history.rates else 0.0
        times = [round(now / 1000 + at - latest, 1) for at, _ in history.rates]
        rates = [round(rate, 1) for _, rate in history.rates]
        found: dict[str, object] = {
            "": {**_totals(extent), "rate": numbers.rate(history.rate)},
            **{each.partition: _partition(watcher, log, each) for each in extent.partitions},
            "plot": [times, rates],
        }
        return found

    return live(request, session, [log], read, partitions=True)


def _partition(watcher: Watcher, log: str, each: PartitionExtent) -> dict[str, str]:
    return {
        "start": numbers.count(each.earliest),
        "end": numbers.count(each.next),
        "events": numbers.count(each.next - each.earliest),
        "bytes": numbers.size(each.bytes),
        "rate": numbers.rate(watcher.history(log, each.partition).rate),
        "last": numbers.time(each.last_timestamp_ms),
    }


def _totals(extent: LogExtent) -> dict[str, str]:
    skewed = skew([each.next - each.earliest for each in extent.partitions])
    return {
        "events": numbers.count(events_of(extent)),
        "bytes": numbers.size(bytes_of(extent)),
        "skew": "-" if skewed is None else f"{skewed:.2f}",
    }


# -- events


async def events(request: Request, session: Session) -> Response:
    """A page of events of a log."""
    log, query = request.path_params["log"], request.query_params
    extent = await extent_of(session, log)
    found, problem = await read_chosen(request, session, extent, partial(read_page, session.client))
    return page(
        request,
        "events_table.html" if request.headers.get("hx-target") == "events" else "events.html",
        session,
        view="logs",
        tab="events",
        log=log,
        extent=extent,
        found=found,
        problem=problem,
        query={name: query.get(name, "") for name in ("partition", "from", "at", "where", "count")},
        together=PARTITIONS_MAX,
        status=400 if problem and request.headers.get("hx-target") != "events" else 200,
    )


async def check_filter(request: Request, session: Session) -> Response:
    """Whether the node accepts a filter: a part of the page that says so, with the position of an error."""
    sql = request.query_params.get("where", "").strip()
    problem, below = "", ""
    if len(sql) > FILTER_MAX:
        problem = FILTER_TOO_LONG
    elif sql:
        try:
            await reading.check_filter(session.client, request.path_params["log"], sql)
        except LinkRefusedError as error:
            if error.condition != names.INVALID_FIELD:
                raise
            found = POSITION.match(error.description)
            below = pointer(sql, int(found[1])) if found else ""
            problem = without_position(error.description)
    return page(request, "filter_part.html", session, sql=sql, problem=problem, pointer=below)


# -- one event


async def event(request: Request, session: Session) -> Response:
    """One event, with all its sections. A form has an Avro schema for its body."""
    log, partition, offset = _place(request)
    found = await _message(request, session)
    is_form, query = request.method == "POST", request.query_params
    fields = form_of(request) if is_form else query if "schema" in query else None
    by_schema = await by_avro(session, log, found.content, fields, keep=is_form)
    url = console_of(request).settings.url
    return page(
        request,
        "event.html",
        session,
        view="logs",
        tab="events",
        log=log,
        partition=partition,
        offset=offset,
        stored_ms=found.timestamp_ms,
        size=len(found.content),
        shown=shown(found.content),
        command=as_command(url, log, partition, offset, session.reader),
        program=as_python(url, log, partition, offset, session.reader),
        hint=session.reader.hint,
        avro=by_schema,
        forms=FORMS,
        values_max=VALUES_MAX,
        status=400 if is_form and by_schema.problem else 200,
    )


async def download(request: Request, session: Session) -> Response:
    """The body or the whole message of an event, as a file."""
    return _Download(request, session)


class _Download(Response):
    """Reads an event and sends it, while it holds one of the console's downloads: each is in memory."""

    def __init__(self, request: Request, session: Session) -> None:
        super().__init__()
        self._request: Final = request
        self._session: Final = session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        answer: Response | None = None
        # A client that reads slowly is cut, so that others get their turn.
        try:
            async with asyncio.timeout(_DOWNLOAD_S), _downloads.place(self._session):
                answer = await _file(self._request, self._session)
                await answer(scope, receive, send)
        except TimeoutError as error:
            if isinstance(error, AmqpStreamsError):
                raise
            if answer is None:
                raise HTTPException(503, "Too many downloads are open. Try again in a minute.") from error


async def _file(request: Request, session: Session) -> Response:
    offset = _place(request)[2]
    found = await _message(request, session)
    part = request.path_params["part"]
    try:
        content = body_bytes(found.content) if part == "body" else found.content
    except WireError as error:
        raise HTTPException(422, f"The body cannot be read: {error}") from error
    # Not the name of the log: it may have characters that a header does not take.
    name = f"event-{offset}.{'bin' if part == 'body' else 'amqp'}"

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(content), _CHUNK_BYTES):
            yield content[at : at + _CHUNK_BYTES]

    # Never the content type of the event: a browser would show HTML of an event as a page of this site.
    return StreamingResponse(
        chunks(),
        media_type="application/octet-stream",
        headers={
            "content-disposition": f'attachment; filename="{name}"',
            "content-length": str(len(content)),
        },
    )


def _place(request: Request) -> tuple[str, str, int]:
    given = request.path_params
    return given["log"], given["partition"], given["offset"]


async def _message(request: Request, session: Session) -> Message:
    log, partition, offset = _place(request)
    found = await read_event(session.client, log, partition, offset)
    if found is None:
        raise HTTPException(404, f"Partition {partition} of {log} has no event with the offset {offset} now.")
    return found
