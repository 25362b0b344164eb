"""[io] The health of a node: figures over time, warnings with remedies, settings, recent changes."""

from starlette.requests import Request
from starlette.responses import Response

from amqp_streams.client import Client, NodeInfo
from web_console.figures.watching import Asked, Question
from web_console.sessions.session import Session
from web_console.showing.health import figure_rows, trends_of
from web_console.showing.words import sentence
from web_console.views.live_parts import live_part
from web_console.views.requests import console_of, page, root_of

_LIVE = ("figures", "warnings", "changes")


async def show(request: Request, session: Session) -> Response:
    """The page."""
    node = await session.client.management.describe_node(timeout=10)
    return page(
        request,
        "health.html",
        session,
        view="health",
        node=node,
        rows=figure_rows(node, {}),
        settings=node.settings,
        gone="",
    )


async def stream(request: Request, session: Session) -> Response:
    """What moves, as it changes."""

    async def ask(client: Client) -> object:
        return await client.management.describe_node(parts=_LIVE)

    def render(asked: Asked) -> str:
        if not isinstance(asked.answer, NodeInfo):
            return console_of(request).render(
                "ended.html", gone="" if asked.error is None else sentence(asked.error)
            )
        return console_of(request).render(
            "health_part.html",
            root=root_of(request),
            product=console_of(request).product,
            node=asked.answer,
            rows=figure_rows(asked.answer, {name: trend.values for name, trend in asked.trends.items()}),
            gone="" if asked.error is None else sentence(asked.error),
        )

    def trends(answer: object) -> dict[str, float]:
        assert isinstance(answer, NodeInfo)
        return trends_of(answer)

    return live_part(request, session, Question(("node",), ask, trends), render)
