"""[io] The console of a gateway: its paths, and the answers to errors of the gateway."""

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from web_console.gateway import mapping, receiving, sources, trying
from web_console.gateway.api import ApiError, AwayError, status_of
from web_console.gateway.health import page as health
from web_console.gateway.session import away_words, log_in
from web_console.product import Product
from web_console.views.requests import console_of, end_session, problem, with_session


def _routes() -> Sequence[BaseRoute]:
    return [
        Route("/map", with_session(mapping.show)),
        Route("/health", with_session(health.show)),
        Route("/health/stream", with_session(health.stream)),
        Route("/map/figures", with_session(mapping.figures)),
        Route("/map/trigger/{namespace}/{name}/filters", with_session(trying.show)),
        Route("/map/trigger/{namespace}/{name}/filters", with_session(trying.attempt), methods=["POST"]),
        Route("/sources/{kind}/{namespace}/{name}", with_session(sources.show)),
        Route("/sources/{kind}/{namespace}/{name}/event", with_session(sources.event)),
        Route("/sources/{kind}/{namespace}/{name}/given", with_session(sources.draft)),
        Route("/sources/{kind}/{namespace}/{name}/given", with_session(sources.given), methods=["POST"]),
        Route("/map/{kind}/{namespace}/{name}", with_session(receiving.show)),
        Route("/map/{kind}/{namespace}/{name}/stream", with_session(receiving.stream)),
        Route("/map/{kind}/{namespace}/{name}/{action}", with_session(receiving.act), methods=["POST"]),
    ]


async def _refused(request: Request, error: ApiError) -> Response:
    if error.code == 401:
        return await end_session(request, reason="refused")
    return problem(request, str(error), status_of(error))


async def _away(request: Request, error: AwayError) -> Response:
    return problem(request, away_words(console_of(request).settings.url, error), 503, away=True)


GATEWAY: Final = Product(
    noun="gateway",
    views=(("map", "Map"), ("health", "Health")),
    has_users=False,
    log_in=log_in,
    routes=_routes,
    handlers={ApiError: _refused, AwayError: _away},
)
"""Brokers and Channels, with their Triggers and Subscriptions."""
