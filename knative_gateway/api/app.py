"""The ASGI application: authorization, routing to documents and kinds, errors as Status objects. [io]"""

import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, Protocol

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, NoMatchFound

from knative_gateway.api import reading, reviews
from knative_gateway.api.actions import Actions, Replays
from knative_gateway.api.auditing import Audit
from knative_gateway.api.definitions import Definitions
from knative_gateway.api.describing.documents import GATEWAY, Documents
from knative_gateway.api.handlers import (
    HOLDS,
    ApiSettings,
    Handlers,
    answer,
    answered,
    not_allowed,
    nowhere,
)
from knative_gateway.api.objects import DEFAULT_NAMESPACE, Objects, Removed
from knative_gateway.api.stepping import Callers, ClientLeftError
from knative_gateway.api.targets import target
from knative_gateway.errors import ForbiddenError, UnauthenticatedError, UnavailableError
from knative_gateway.http.asgi import HAS_LEFT
from knative_gateway.ports import CursorStore, ResourceStore
from knative_gateway.resources.objects import timestamp
from knative_gateway.resources.refusals import StatusError, bad_request
from knative_gateway.running.supervising import Supervisor
from knative_gateway.security.access import ANONYMOUS, Access, Gate, Identity, Verb
from service_parts.health.changes import Changes
from service_parts.networks import network_of

RETRY_AFTER_S: Final = 1

_log: Final = structlog.get_logger("knative_gateway.api")


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Health(Protocol):
    """Answers what the gateway is and how it does."""

    @property
    def changes(self) -> Changes:
        """What users changed recently."""

    async def document(self) -> Mapping[str, object]:
        """Return the answer.

        Raises:
          UnavailableError: it is not known now.
        """


class Api:
    """The whole API as an ASGI application.

    Call `start` before the first request. Call `close` before the listener drains: it ends the watches, which
    would otherwise keep their connections open.
    """

    def __init__(
        self,
        store: ResourceStore,
        cursors: CursorStore,
        *,
        settings: ApiSettings | None = None,
        gate: Gate | None = None,
        replays: Replays | None = None,
        now_ms: Callable[[], int] = _wall_ms,
        tasks: Supervisor | None = None,
        removed: Removed = lambda _objects: None,
        health: Health | None = None,
    ) -> None:
        """`removed`: called with deleted objects, before the client gets its answer. `health`: answers what
        the gateway is.
        """
        self.settings: Final = settings or ApiSettings()
        self.definitions: Final = Definitions(store, started=timestamp(now_ms()), tasks=tasks)
        self.objects: Final = Objects(store, self.definitions, self.settings.namespaces, removed=removed)
        self._handlers: Final = Handlers(
            self.objects,
            store,
            Actions(self.objects, cursors, replays),
            self.settings,
            Audit(None if health is None else health.changes),
            now_ms=now_ms,
        )
        self._health: Final = health
        self._documents: Final = Documents()
        self._callers: Final = Callers()
        self._gate: Final = gate or Gate()
        self._now_ms: Final = now_ms

    @property
    def routes(self) -> list[BaseRoute]:
        """Routes for a Starlette application. They match every path, so they must come last."""
        return [_EveryPath(self)]

    async def start(self) -> None:
        """Read the stored definitions, and create the default namespace.

        Raises:
          UnavailableError: the store is not available.
        """
        await self.definitions.start()
        await self.objects.make_namespace(DEFAULT_NAMESPACE, self._now_ms())

    async def close(self) -> None:
        self._handlers.closing.set()
        await self.definitions.close()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request. Every error becomes a Status."""
        request = Request(scope, receive)
        async with AsyncExitStack() as scope[HOLDS]:
            try:
                response = await self._answer(request)
            except (ClientDisconnect, ClientLeftError):
                return
            except Exception as error:  # noqa: BLE001  the outermost handler: every error becomes a Status
                response = await _refusal(error, request)
            await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        meant = target(request.scope["path"])
        verb = Verb.READ if request.method in {"GET", "HEAD"} else Verb.WRITE
        authorization = _authorization(request)
        # Before anything is looked up: a client without a valid token must not learn which kinds and paths
        # exist.
        identity = self._gate.identify(authorization)
        self._callers.call(_caller(request, identity), request.scope.get("state", {}).get(HAS_LEFT, _stays))
        path = request.scope["path"]
        if path in reviews.PATHS and request.method == "POST":
            return await answer(
                reviews.answered(
                    path, await reading.body(request, self.settings.body_bytes_max), self._gate, identity
                ),
                201,
            )
        if path == GATEWAY:
            return await self._gateway(request, identity)
        if meant is None:  # every authenticated user may read the discovery documents
            found = await self._documents.text(request, self.definitions.registry)
            if found is None:
                raise nowhere()
            if request.method != "GET":
                raise not_allowed()
            return answered(*found)
        kind = self.definitions.registry.find(meant.group, meant.version, meant.plural)
        if kind is None:
            raise nowhere()
        access = Access(self._gate, authorization, meant.namespace, kind.full_name, user=identity.user)
        # Before the body is read and the object is looked up, so that 403 does not depend on whether the
        # object exists.
        access.check(verb)
        return await self._handlers.answer(request, meant, kind, access)

    async def _gateway(self, request: Request, identity: Identity) -> Response:
        """Answer what the gateway is: for those who may read everything, because it shows all settings."""
        self._gate.check(identity, Verb.READ, namespace="", what="gateway.gateway.knative.dev")
        if self._health is None:
            raise nowhere()
        if request.method != "GET":
            raise not_allowed()
        return await answer(await self._health.document())


class _EveryPath(BaseRoute):
    """Every path leads to the API. The pattern `{path:path}` would leave out paths with a line break, which
    Starlette answers in plain text.
    """

    def __init__(self, api: Api) -> None:
        self._api: Final = api

    def matches(self, scope: Any) -> tuple[Match, Any]:
        return (Match.FULL if scope["type"] == "http" else Match.NONE), {}

    def url_path_for(self, name: str, /, **path_params: Any) -> Any:
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        await self._api(scope, receive, send)


def _caller(request: Request, identity: Identity) -> str:
    """Return whose large requests take turns with those of others: a user, or an address without logins."""
    if identity.user == ANONYMOUS and request.client is not None:
        return network_of(request.client.host)
    return identity.user


def _stays() -> bool:
    return False


def _authorization(request: Request) -> str | None:
    """Return the Authorization header. Two of them are refused: a proxy and the gateway could use different
    ones.
    """
    values = request.headers.getlist("authorization")
    if len(values) > 1:
        message = "the request has more than one Authorization header"
        raise bad_request(message)
    return values[0] if values else None


async def _refusal(error: Exception, request: Request) -> Response:
    headers: dict[str, str] = {}
    match error:
        case StatusError():
            status = error
            if "retryAfterSeconds" in error.details:
                headers["retry-after"] = str(error.details["retryAfterSeconds"])
        case UnauthenticatedError():
            status = StatusError(401, "Unauthorized", "Unauthorized")
            # RFC 9110, 11.6.1: a 401 must name a scheme.
            headers["www-authenticate"] = "Bearer"
        case ForbiddenError():
            status = StatusError(403, "Forbidden", str(error))
        case UnavailableError():
            status = StatusError(
                503, "ServiceUnavailable", str(error), details={"retryAfterSeconds": RETRY_AFTER_S}
            )
            headers["retry-after"] = str(RETRY_AFTER_S)
            _log.warning(
                "request_failed", method=request.method, path=request.scope["path"], reason=str(error)
            )
        case _:
            # The client learns no details: the text of an exception may contain data of other users.
            _log.error("request_broke", method=request.method, path=request.scope["path"], exc_info=error)
            status = StatusError(500, "InternalError", "Internal error occurred: see the gateway's log")
    response = await answer(status.status(), status.code)
    response.headers.update(headers)
    return response
