"""[io] One Broker or Channel: its events, the path of one, and who would get an event that is given."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from web_console.gateway.api import ApiError, status_of
from web_console.gateway.paths import (
    SUBSCRIBERS,
    curl_of,
    given_of,
    listed_of,
    listing_of,
    path_of,
    position_of,
    skip_of,
)
from web_console.gateway.rows import TITLES, collection
from web_console.gateway.session import GatewaySession
from web_console.showing.snippets import Curl
from web_console.views.requests import form_of, now_ms, page, root_of

_KINDS: Final = ("broker", "channel", "inmemorychannel")
_TYPED: Final = ("events", "partition", "id", "source", "time")
_TYPED_MAX: Final = 4096
_NOTHING: Final[Mapping[str, Any]] = {"problem": "", "listed": None, "path": None, "more": ""}
_EXAMPLE: Final = """{
  "specversion": "1.0",
  "id": "1",
  "source": "/kitchen",
  "type": "measured",
  "data": {"celsius": 21}
}"""


async def show(request: Request, session: GatewaySession) -> Response:
    """The latest events, a page before, or those with an id."""
    query = {name: value[:_TYPED_MAX] for name, value in request.query_params.items()}
    values: dict[str, Any] = {"typed": {name: query.get(name, "") for name in _TYPED}}
    at = position_of(query.get("id", ""))
    try:
        answer = await session.api.post(
            f"{_path(request)}/events", listing_of(request.query_params, now_ms())
        )
        listed = listed_of(answer)
    except (ValueError, ApiError) as error:
        values |= _problem(error)
    else:
        kept = {name: text for name, text in values["typed"].items() if text}
        more = urlencode({**kept, "before": listed.more}) if listed.more else ""
        values |= {"listed": listed, "more": more}
    return _page(
        request,
        session,
        "source.html",
        at=at,
        is_search=bool(query.get("id") or query.get("source")),
        **{**_NOTHING, **values},
    )


async def event(request: Request, session: GatewaySession) -> Response:
    """The path of one event."""
    at, skip = position_of(request.query_params.get("at", "")), skip_of(request.query_params)
    if at is None:
        raise HTTPException(404, "This page does not exist: an event is at PARTITION:OFFSET, such as 0:42.")
    asked = {"partition": at[0], "offset": at[1], "limit": SUBSCRIBERS, "skip": skip}
    values: dict[str, Any] = {"position": f"{at[0]}:{at[1]}", "skip": skip, "step": SUBSCRIBERS}
    try:
        answer = await session.api.post(f"{_path(request)}/trace", asked)
        values |= {"path": path_of(answer), "curl": await _curl(request, session, answer)}
    except ApiError as error:
        values |= _problem(error)
    return _page(request, session, "path.html", **values)


async def _curl(request: Request, session: GatewaySession, answer: Mapping[str, Any]) -> Curl:
    """Return the command that sends an event again. The page is complete without it."""
    try:
        source = await session.api.get(_path(request))
    except ApiError as error:
        if error.code == 401:
            raise
        return Curl(problem=f"A command for curl is not available: {error}")
    return curl_of(answer, source, with_token=not session.is_anonymous)


async def draft(request: Request, session: GatewaySession) -> Response:
    """The form for an event that is pasted."""
    _path(request)
    return _page(request, session, "given.html", typed=_EXAMPLE, skip=0, step=SUBSCRIBERS)


async def given(request: Request, session: GatewaySession) -> Response:
    """Who would get an event that was pasted. It is not stored."""
    form = form_of(request)
    values: dict[str, Any] = {"typed": form.get("event", ""), "skip": skip_of(form), "step": SUBSCRIBERS}
    try:
        values["path"] = path_of(await session.api.post(f"{_path(request)}/trace", given_of(form)))
    except (ValueError, ApiError) as error:
        values |= _problem(error)
    return _page(request, session, "given.html", **values)


def _problem(error: ValueError | ApiError) -> Mapping[str, Any]:
    if isinstance(error, ApiError):
        if error.code == 401:
            raise error
        return {"problem": str(error), "status": status_of(error)}
    return {"problem": str(error), "status": 400}


def _path(request: Request) -> str:
    kind, namespace, name = (str(request.path_params[part]) for part in ("kind", "namespace", "name"))
    if kind not in _KINDS:
        raise HTTPException(404, "This page does not exist.")
    return f"{collection(kind, quote(namespace, safe=''))}/{quote(name, safe='')}"


def _page(request: Request, session: GatewaySession, template: str, **values: Any) -> Response:
    kind, namespace, name = (str(request.path_params[part]) for part in ("kind", "namespace", "name"))
    here = "/".join(quote(part, safe="") for part in (kind, namespace, name))
    return page(
        request,
        template,
        session,
        view="map",
        title=TITLES[kind],
        namespace=namespace,
        name=name,
        here=f"{root_of(request)}/sources/{here}",
        **{**_NOTHING, **values},
    )
