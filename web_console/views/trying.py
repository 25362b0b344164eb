"""[io] The filter tester: a filter is applied to stored events of a log, and nothing is changed.

The node evaluates the filter, as for a consumer, so the results are those that a consumer would have. The
console reads the events with the login of the session: a user who may not read the log gets no result.
"""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from web_console.sessions.session import Session
from web_console.showing.browsing import PARTITIONS_MAX
from web_console.views.choosing import read_chosen
from web_console.views.log import extent_of
from web_console.views.reading import try_filter
from web_console.views.requests import page


async def show(request: Request, session: Session) -> Response:
    """The page, with results if a filter is given."""
    log, query = request.path_params["log"], request.query_params
    extent = await extent_of(session, log)
    tried, problem = await read_chosen(request, session, extent, partial(try_filter, session.client))
    is_part = request.headers.get("hx-target") == "results"
    return page(
        request,
        "try_table.html" if is_part else "try.html",
        session,
        view="logs",
        tab="try",
        log=log,
        extent=extent,
        tried=tried,
        problem=problem,
        query={name: query.get(name, "") for name in ("partition", "from", "at", "where")},
        together=PARTITIONS_MAX,
        status=400 if problem and not is_part else 200,
    )
