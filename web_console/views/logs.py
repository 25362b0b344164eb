"""[io] The list of logs, with live figures."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from amqp_streams import names
from amqp_streams.client import LogExtent, LogSummary
from web_console.figures.stream import KEEP_ALIVE, server_event
from web_console.figures.watching import LOGS_MAX, OUT, Watcher
from web_console.sessions.session import Session
from web_console.showing import numbers
from web_console.showing.paging import number_of, page_of
from web_console.views.requests import page, spark_points
from web_console.views.streams import event_stream

_WAIT_S: Final = 15.0
_LISTED_S: Final = 10.0


class Listed(NamedTuple):
    """A log in the list."""

    name: str
    partitions: int
    kept: str


async def show(request: Request, session: Session) -> Response:
    """A page of the list."""
    wanted = request.query_params.get("find", "")[:255]
    is_part = request.headers.get("hx-target") == "list"
    listed = await _listed(session, fresh=not is_part)
    found = [one for one in listed if wanted.lower() in one.name.lower()]
    here = page_of(found, number_of(request.query_params.get("page")))
    extents = await session.client.extents([one.name for one in here.items], missing_ok=True, timeout=10)
    rows = [_row(one, extents.get(one.name)) for one in here.items]
    return page(
        request,
        "logs_table.html" if is_part else "logs.html",
        session,
        rows=rows,
        page=here,
        find=wanted,
        all=len(listed),
        view="logs",
    )


async def _listed(session: Session, *, fresh: bool) -> Sequence[Listed]:
    """Return all logs that the user may see.

    While a search is typed the last list is used: the node describes each partition of each log in it.
    """
    kept: tuple[float, Sequence[Listed]] | None = session.kept.get("logs")
    if not fresh and kept is not None and time.monotonic() - kept[0] < _LISTED_S:
        return kept[1]
    listed = [_of(one) for one in await session.client.management.list_logs(timeout=10)]
    session.kept["logs"] = time.monotonic(), listed
    return listed


def _of(one: LogSummary) -> Listed:
    retention = [
        _whole(one.details.get(name)) for name in (names.INFO_RETENTION_MS, names.INFO_RETENTION_BYTES)
    ]
    return Listed(one.name, one.partitions, numbers.kept(*retention))


def _row(one: Listed, extent: LogExtent | None) -> dict[str, object]:
    return {
        "name": one.name,
        "partitions": one.partitions,
        "events": numbers.count(None if extent is None else events_of(extent)),
        "bytes": numbers.size(None if extent is None else bytes_of(extent)),
        "kept": one.kept,
        **_readers(extent),
    }


def _readers(extent: LogExtent | None) -> dict[str, str]:
    """A dash for what the node does not send to this user."""
    return {
        "consumers": numbers.count(None if extent is None else extent.consumers),
        "groups": numbers.count(None if extent is None else extent.groups),
    }


def events_of(extent: LogExtent) -> int:
    """The stored events of a log. With gaps, the most that there can be."""
    return sum(one.next - one.earliest for one in extent.partitions)


def bytes_of(extent: LogExtent) -> int:
    """The stored bytes of a log."""
    return sum(one.bytes for one in extent.partitions)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


async def figures(request: Request, session: Session) -> Response:
    """Live figures of the logs that a page of the list shows, as server-sent events."""
    logs = frozenset(request.query_params.getlist("log")[:LOGS_MAX])

    def read(watcher: Watcher) -> object:
        return {name: _figures(watcher, name) for name in logs if name in watcher.latest.extents}

    return live(request, session, logs, read)


def _figures(watcher: Watcher, name: str) -> dict[str, str]:
    extent, history = watcher.latest.extents[name], watcher.history(name)
    return {
        "events": numbers.count(events_of(extent)),
        "bytes": numbers.size(bytes_of(extent)),
        "rate": numbers.rate(history.rate),
        "out": numbers.rate(None if extent.events_out is None else watcher.history(name, OUT).rate),
        **_readers(extent),
        "spark": spark_points([rate for _, rate in history.rates]),
    }


def live(
    request: Request,
    session: Session,
    logs: Iterable[str],
    read: Callable[[Watcher], object],
    *,
    partitions: bool = False,
) -> Response:
    """Return a stream of what `read` returns, each time the figures were read from the node. None ends it:
    what the page shows does not exist any more.

    Raises:
        TooManyRequestsError: the session has too many.
    """

    async def events() -> AsyncGenerator[bytes, None]:
        watcher = session.watcher
        async with watcher.view(frozenset(logs), partitions=partitions) as view:
            while True:
                try:
                    await asyncio.wait_for(view.changed.wait(), _WAIT_S)
                except TimeoutError:
                    yield KEEP_ALIVE
                    continue
                view.changed.clear()
                request.app.state.touch(request)
                latest = watcher.latest
                if latest.refused:
                    yield server_event("ended", "refused")
                    return
                if latest.problem is not None:
                    yield server_event("away", latest.problem)
                elif (found := read(watcher)) is None:
                    yield server_event("ended", "gone")
                    return
                else:
                    yield server_event("figures", found)

    return event_stream(session, events())
