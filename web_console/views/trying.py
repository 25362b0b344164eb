"""[io] The filter tester: a filter is applied to stored events of a log, and nothing is changed.

The node evaluates the filter, as for a consumer, so the results are those that a consumer would have. It is
read with the login of the session: who may not read the log gets no result.
"""

from starlette.requests import Request
from starlette.responses import Response

from amqp_streams.client import LinkRefusedError
from web_console.sessions.session import Session
from web_console.showing.browsing import PARTITIONS_MAX
from web_console.showing.trying import Tried
from web_console.showing.words import sentence
from web_console.views.log import FILTER_MAX, count_of, extent_of, starts_of, without_position
from web_console.views.reading import SlowError, try_filter
from web_console.views.requests import page


async def show(request: Request, session: Session) -> Response:
    """The page, with results if a filter is given."""
    log, query = request.path_params["log"], request.query_params
    extent = await extent_of(session, log)
    chosen, sql = query.get("partition", ""), query.get("where", "").strip()
    parts = [each for each in extent.partitions if chosen in {"", each.partition}]
    tried: Tried | None = None
    problem = ""
    if len(sql) > FILTER_MAX:
        problem = f"The filter has more than {FILTER_MAX:,} characters."
    elif not parts:
        problem = f"The log has no partition {chosen[:40]!r}."
    elif len(parts) > PARTITIONS_MAX:
        problem = f"The log has more than {PARTITIONS_MAX} partitions. Choose one."
    elif sql:
        try:
            where, starts = await starts_of(request, session, log, parts)
            tried = await try_filter(
                session.client, log, parts, where, starts, count=count_of(query.get("count")), sql=sql
            )
        except SlowError:
            problem = "Reading took too long. Choose a partition, or fewer events."
        except (ValueError, LinkRefusedError) as error:
            problem = without_position(sentence(error))
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
        status=400 if problem and not is_part else 200,
    )
