"""[io] The console of a node: its paths, and the answers to errors of the node."""

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from amqp_streams.client import AuthenticationError, ClosedError
from amqp_streams.errors import AmqpStreamsError
from web_console.product import Product
from web_console.sessions.rights import of_log
from web_console.sessions.session import log_in
from web_console.showing.words import is_away, sentence, status
from web_console.views import changing, connections, groups, health, log, logs, tail, trying
from web_console.views.requests import console_of, end_session, problem, session_of, with_session

_EVENT: Final = "/logs/{log}/events/{partition}/{offset:int}"


def _routes() -> Sequence[BaseRoute]:
    return [
        Route("/logs", with_session(logs.show)),
        Route("/figures", with_session(logs.figures)),
        Route("/logs/{log}", with_session(of_log(log.show))),
        Route("/logs/{log}/figures", with_session(log.figures)),
        Route("/logs/{log}/filter", with_session(log.check_filter)),
        Route("/create", with_session(changing.draft)),
        Route("/create", with_session(changing.create), methods=["POST"]),
        Route("/logs/{log}/settings", with_session(of_log(changing.show))),
        Route("/logs/{log}/settings", with_session(of_log(changing.change)), methods=["POST"]),
        Route("/logs/{log}/delete", with_session(of_log(changing.delete)), methods=["POST"]),
        Route("/groups", with_session(groups.show)),
        Route("/group", with_session(groups.one)),
        Route("/group/stream", with_session(groups.stream)),
        Route("/group/reset", with_session(groups.reset), methods=["POST"]),
        Route("/group/remove", with_session(groups.remove), methods=["POST"]),
        Route("/connections", with_session(connections.show)),
        Route("/connections/stream", with_session(connections.stream)),
        Route("/connections/{name}", with_session(connections.one)),
        Route("/connections/{name}/stream", with_session(connections.stream_one)),
        Route("/connections/{name}/close", with_session(connections.close), methods=["POST"]),
        Route("/health", with_session(health.show)),
        Route("/health/stream", with_session(health.stream)),
        Route("/logs/{log}/tail", with_session(of_log(tail.show))),
        Route("/logs/{log}/tail/stream", with_session(tail.stream)),
        Route("/logs/{log}/send", with_session(of_log(tail.draft))),
        Route("/logs/{log}/send", with_session(of_log(tail.send)), methods=["POST"]),
        Route("/logs/{log}/try", with_session(of_log(trying.show))),
        Route("/logs/{log}/events", with_session(of_log(log.events))),
        Route(_EVENT, with_session(of_log(log.event))),
        Route(_EVENT, with_session(of_log(log.event)), methods=["POST"]),
        Route(f"{_EVENT}/{{part}}", with_session(log.download)),
    ]


async def _failed(request: Request, error: AmqpStreamsError) -> Response:
    session = session_of(request)
    if session is not None and session.is_over:
        # The connection had to log in again, and the provider did not renew the login.
        return await end_session(request, reason="ended")
    if isinstance(error, AuthenticationError | ClosedError):
        reason = "refused" if isinstance(error, AuthenticationError) else "ended"
        return await end_session(request, reason=reason)
    address = console_of(request).settings.url.rpartition("@")[2]
    return problem(request, sentence(error, address), status(error), away=is_away(error))


NODE: Final = Product(
    noun="node",
    views=(
        ("logs", "Logs"),
        ("groups", "Groups and cursors"),
        ("connections", "Connections"),
        ("health", "Health"),
    ),
    has_users=True,
    log_in=log_in,
    routes=_routes,
    handlers={AmqpStreamsError: _failed},
)
"""Logs, their events and their consumer groups."""
