"""[io] The health of a gateway: figures over time, warnings with remedies, settings, recent changes."""

import time
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from web_console.figures.stream import server_event
from web_console.figures.trends import Trend
from web_console.gateway.health.condition import Condition, condition_of
from web_console.gateway.repeating import repeated
from web_console.gateway.session import HEALTH, GatewaySession
from web_console.showing.health import Figure
from web_console.views.requests import console_of, page, root_of
from web_console.views.streams import event_stream

_TRENDS: Final = "health trends"


async def show(request: Request, session: GatewaySession) -> Response:
    """The page."""
    # The trends begin anew: they are those since the page was opened.
    trends: dict[str, Trend] = {}
    session.kept[_TRENDS] = trends
    found = condition_of(await session.api.get(HEALTH))
    return page(
        request,
        "health.html",
        session,
        view="health",
        gateway=found,
        rows=_rows(found, trends),
        settings=found.settings,
    )


async def stream(request: Request, session: GatewaySession) -> Response:
    """What moves, as it changes."""

    async def read() -> tuple[bytes, float]:
        begun_s = time.monotonic()
        found = condition_of(await session.api.get(HEALTH))
        took_s = time.monotonic() - begun_s
        html = console_of(request).render(
            "gateway_health_part.html",
            root=root_of(request),
            product=console_of(request).product,
            gateway=found,
            rows=_rows(found, session.kept.setdefault(_TRENDS, {})),
        )
        return server_event("html", html), took_s

    return event_stream(session, repeated(request, session, read))


def _rows(found: Condition, trends: dict[str, Trend]) -> list[Figure]:
    """Return the rows with their trends, to which the present values are added."""
    for name, value in found.figures.items():
        trends.setdefault(name, Trend()).add(value)
    kept = {name: trend.values for name, trend in trends.items()}
    return [each._replace(trend=kept.get(each.name, ())) for each in found.rows]
