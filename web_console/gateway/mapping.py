"""[io] The map: Brokers and Channels with what receives their events, with live figures."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from web_console.figures.stream import server_event
from web_console.gateway.api import ApiError, status_of
from web_console.gateway.inventory import Listing
from web_console.gateway.repeating import repeated
from web_console.gateway.rows import STATES, Line, Receiver, lines
from web_console.gateway.session import GatewaySession
from web_console.showing import numbers
from web_console.showing.paging import PAGE_SIZE, Page, number_of, page_of
from web_console.views.requests import page
from web_console.views.streams import event_stream

_NAMESPACE: Final = "default"
_NAMESPACE_MAX: Final = 63
_FIND_MAX: Final = 255
_ROW_MAX: Final = 600


async def show(request: Request, session: GatewaySession) -> Response:
    """A page of the map."""
    query = request.query_params
    namespace = namespace_of(request, session)
    find, state = query.get("find", "")[:_FIND_MAX], query.get("state", "")
    state = state if state in STATES else ""
    # A search and the next pages use the last reading: one of 10,000 Triggers takes a second.
    is_part = request.headers.get("hx-target") == "list"
    problem, code, listing = "", 200, None
    try:
        listing = await session.inventory.read(namespace, anew=not is_part and "page" not in query)
    except ApiError as error:
        if error.code == 401:
            raise
        # Within the page: the next namespace may be one that the user may read.
        problem, code = str(error), status_of(error)
    found = [] if listing is None else lines(listing.sources, listing.receivers, find=find, state=state)
    here = page_of(found, number_of(query.get("page")))
    return page(
        request,
        "map_table.html" if is_part else "map.html",
        session,
        view="map",
        page=here,
        groups=_groups(here),
        figures={} if listing is None else _figures(session, listing, _receivers(here)),
        rows=bool(_receivers(here)),
        namespace=namespace,
        namespaces=() if listing is None else listing.namespaces,
        is_whole=listing is None or listing.is_whole,
        find=find,
        state=state,
        states=STATES,
        query=urlencode({"namespace": namespace, "find": find, "state": state}),
        stream=urlencode([("namespace", namespace), *(("row", one.row) for one in _receivers(here))]),
        problem=problem,
        status=code,
    )


def namespace_of(request: Request, session: GatewaySession) -> str:
    """Return the chosen namespace, which a session remembers; empty: all."""
    given = request.query_params.get("namespace")
    if given is not None:
        session.kept["namespace"] = given.strip()[:_NAMESPACE_MAX]
    return str(session.kept.get("namespace", _NAMESPACE))


def _groups(here: Page[Line]) -> list[tuple[Line, list[Receiver]]]:
    """Return the first line of each source on the page, with its receivers on the page."""
    groups: list[tuple[Line, list[Receiver]]] = []
    for line in here.items:
        if not groups or groups[-1][0].key != line.key:
            groups.append((line, []))
        if line.receiver is not None:
            groups[-1][1].append(line.receiver)
    return groups


def _receivers(here: Page[Line]) -> Sequence[Receiver]:
    return [line.receiver for line in here.items if line.receiver is not None]


def _figures(
    session: GatewaySession, listing: Listing, receivers: Sequence[Receiver]
) -> dict[str, dict[str, str]]:
    return {
        one.row: {
            "state": one.state,
            "delivered": numbers.count(one.delivered),
            "rate": numbers.rate(session.inventory.rate(listing, one)),
            "failed": numbers.count(one.failed),
            "dead": numbers.count(one.dead_lettered),
            "dropped": numbers.count(one.dropped),
            "lag": numbers.count(one.lag),
        }
        for one in receivers
    }


async def figures(request: Request, session: GatewaySession) -> Response:
    """Live figures of the rows of a page, as server-sent events."""
    namespace = request.query_params.get("namespace", "").strip()[:_NAMESPACE_MAX]
    rows = {row[:_ROW_MAX] for row in request.query_params.getlist("row")[:PAGE_SIZE]}

    async def read() -> tuple[bytes, float]:
        listing = await session.inventory.read(namespace)
        shown = [one for one in listing.receivers if one.row in rows]
        return server_event("figures", _figures(session, listing, shown)), listing.took_s

    return event_stream(session, repeated(request, session, read))
