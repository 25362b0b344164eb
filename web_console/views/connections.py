"""[io] The connections of a node: a list, one connection with its links, and closing it."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from amqp_streams.client import Client, ConnectionInfo, ConnectionPage, ManagementError
from web_console.figures.watching import Asked, Question
from web_console.sessions.session import Session
from web_console.showing.connections import COLUMNS, SORT_FIRST, sort_of
from web_console.showing.paging import PAGE_SIZE, Page, number_of, page_from
from web_console.showing.words import sentence
from web_console.views.live_parts import live_part
from web_console.views.requests import console_of, form_of, page, root_of

_FIND_MAX: Final = 200
_CLOSED: Final = "closed connection"
_NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a page of the list shows."""

    find: str
    sort: str
    number: int

    async def ask(self, client: Client) -> ConnectionPage:
        """Read this page. If connections have ended, so that it is empty, read the last page."""
        offset = (self.number - 1) * PAGE_SIZE
        found = await self._page(client, offset)
        if not found.connections and found.total and offset:
            found = await self._page(client, (found.total - 1) // PAGE_SIZE * PAGE_SIZE)
        return found

    async def _page(self, client: Client, offset: int) -> ConnectionPage:
        return await client.management.connection_page(
            offset=offset, count=PAGE_SIZE, search=self.find or None, sort=self.sort, timeout=10
        )

    def shown(self, found: ConnectionPage) -> Page[ConnectionInfo]:
        """The page as templates show it."""
        pages = max(1, -(-found.total // PAGE_SIZE))
        return page_from(found.connections, min(self.number, pages), found.total)

    def query(self, **changes: object) -> str:
        """The query of this page with changes."""
        return urlencode({"find": self.find, "sort": self.sort, "page": self.number} | changes)


def _wanted(request: Request) -> _Wanted:
    query = request.query_params
    printable = "".join(filter(str.isprintable, query.get("find", "")))
    return _Wanted(printable[:_FIND_MAX], sort_of(query.get("sort")), number_of(query.get("page")))


async def show(request: Request, session: Session) -> Response:
    """A page of the list."""
    wanted = _wanted(request)
    is_part = request.headers.get("hx-target") == "list"
    if not is_part:
        await _require(session)
    found = await wanted.ask(session.client)
    return page(
        request,
        "connections_table.html" if is_part else "connections.html",
        session,
        view="connections",
        columns=COLUMNS,
        first=SORT_FIRST,
        wanted=wanted,
        page=wanted.shown(found),
        rows=found.connections,
        closed=None if is_part else session.kept.pop(_CLOSED, None),
    )


async def _require(session: Session) -> None:
    """Raise ManagementError if the person may not see the connections of others."""
    await session.client.management.describe_node(parts=["changes"], timeout=10)


async def stream(request: Request, session: Session) -> Response:
    """The rows of a page of the list, as they change."""
    await _require(session)
    wanted = _wanted(request)

    def render(asked: Asked) -> str:
        if asked.error is not None:
            return _gone(request, asked, len(COLUMNS))
        assert isinstance(asked.answer, ConnectionPage)
        return console_of(request).render(
            "connection_rows.html", root=root_of(request), rows=asked.answer.connections
        )

    key = ("connections", wanted.find, wanted.sort, str(wanted.number))
    return live_part(request, session, Question(key, wanted.ask), render)


def _gone(request: Request, asked: Asked, width: int) -> str:
    assert asked.error is not None
    return console_of(request).render("gone_row.html", words=sentence(asked.error), width=width)


async def one(request: Request, session: Session) -> Response:
    """One connection with its links."""
    return _one(request, session, await _found(request, session))


async def _found(request: Request, session: Session) -> ConnectionInfo:
    return await session.client.management.describe_connection(request.path_params["name"], timeout=10)


def _one(
    request: Request,
    session: Session,
    connection: ConnectionInfo,
    *,
    asks: bool = False,
    reason: str = "",
    problem: str = "",
) -> Response:
    return page(
        request,
        "connection.html",
        session,
        view="connections",
        connection=connection,
        trends={},
        gone="",
        asks=asks,
        reason=reason,
        problem=problem,
        status=400 if problem else 200,
    )


async def stream_one(request: Request, session: Session) -> Response:
    """One connection as it changes, and its end."""
    name = request.path_params["name"]

    async def ask(client: Client) -> object:
        return await client.management.describe_connection(name)

    def render(asked: Asked) -> str:
        is_gone = isinstance(asked.error, ManagementError) and asked.error.status == _NOT_FOUND
        gone = "This connection has ended." if is_gone else sentence(asked.error) if asked.error else ""
        if not isinstance(asked.answer, ConnectionInfo):
            return console_of(request).render("ended.html", gone=gone)
        trends = {figure: trend.values for figure, trend in asked.trends.items()}
        return console_of(request).render(
            "connection_part.html", root=root_of(request), connection=asked.answer, trends=trends, gone=gone
        )

    return live_part(request, session, Question(("connection", name), ask, _rates), render)


def _rates(answer: object) -> dict[str, float]:
    assert isinstance(answer, ConnectionInfo)
    rate = answer.rate
    return {
        "events_in": rate.events_in,
        "bytes_in": rate.bytes_in,
        "events_out": rate.events_out,
        "bytes_out": rate.bytes_out,
    }


async def close(request: Request, session: Session) -> Response:
    """Ask for a confirmation, or close the connection."""
    form, connection = form_of(request), await _found(request, session)
    reason = form.get("reason", "").strip()
    if form.get("step") != "close":
        return _one(request, session, connection, asks=True)
    try:
        await session.client.management.close_connection(connection.name, reason=reason or None, timeout=10)
    except ManagementError as error:
        return _one(request, session, connection, asks=True, reason=reason, problem=sentence(error))
    session.kept[_CLOSED] = connection.name
    return RedirectResponse(f"{root_of(request)}/connections", status_code=303)
