"""[io] One Trigger or Subscription: why it is not ready, what failed, and the actions on it."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from web_console.gateway.api import ApiError, Document, status_of
from web_console.gateway.details import details_of, start_of
from web_console.gateway.rows import TITLES, collection
from web_console.gateway.session import GatewaySession
from web_console.views.requests import form_of, now_ms, page

_KINDS: Final = ("trigger", "subscription")
_NOTICES: Final = {
    "pause": "Deliveries are paused. Events wait in the log.",
    "resume": "Deliveries continue.",
    "replay": "Events are delivered again from there.",
}
_TYPED: Final = ("to", "at", "partition")


async def show(request: Request, session: GatewaySession) -> Response:
    """The page of one Trigger or Subscription."""
    return await _page(request, session)


async def act(request: Request, session: GatewaySession) -> Response:
    """Pause, resume, replay or redrive."""
    form, action = form_of(request), request.path_params["action"]
    if action not in {*_NOTICES, "redrive"}:
        raise HTTPException(404, "This page does not exist.")
    try:
        options = _options(request, action, form)
        answer = await session.api.post(f"{_path(request)}/{action}", options)
    except ValueError as error:
        return await _page(request, session, form=form, problem=str(error), code=400)
    except ApiError as error:
        if error.code == 401:
            raise
        return await _page(request, session, form=form, problem=str(error), code=status_of(error))
    return await _page(request, session, notice=_NOTICES.get(action) or _redriven(answer))


def _options(request: Request, action: str, form: Mapping[str, str]) -> Document:
    """Return the body of the request to the API.

    Raises:
        ValueError: a field of the form is not valid.
    """
    if action != "replay":
        return {}
    if form.get("name", "").strip() != request.path_params["name"]:
        message = "Nothing is delivered again: type the name to confirm."
        raise ValueError(message)
    return {"start": start_of(form, now_ms())}


def _redriven(answer: Document) -> str:
    events = answer.get("events")
    if not isinstance(events, int) or not events:
        return "The history has no event that can be delivered again."
    return f"{events:,} {'event is' if events == 1 else 'events are'} delivered again."


def _path(request: Request) -> str:
    kind, namespace, name = (str(request.path_params[part]) for part in ("kind", "namespace", "name"))
    if kind not in _KINDS:
        raise HTTPException(404, "This page does not exist.")
    return f"{collection(kind, quote(namespace, safe=''))}/{quote(name, safe='')}"


async def _page(
    request: Request,
    session: GatewaySession,
    *,
    form: Mapping[str, str] | None = None,
    problem: str = "",
    notice: str = "",
    code: int = 200,
) -> Response:
    path = _path(request)
    document = await session.api.get(path)
    deliveries = await session.api.get(f"{path}/deliveries")
    kind = str(request.path_params["kind"])
    return page(
        request,
        "receiver.html",
        session,
        view="map",
        kind=kind,
        title=TITLES[kind],
        namespace=request.path_params["namespace"],
        name=request.path_params["name"],
        details=details_of(document, deliveries),
        typed={name: (form or {}).get(name, "") for name in _TYPED},
        problem=problem,
        notice=notice,
        status=code,
    )
