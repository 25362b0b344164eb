"""[io] One Trigger or Subscription: why it is not ready, what failed, and the actions on it."""

import time
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from web_console.figures.stream import server_event
from web_console.gateway.api import ApiError, Document, status_of
from web_console.gateway.details import Details, details_of, selected, start_of
from web_console.gateway.repeating import repeated
from web_console.gateway.rows import TITLES, collection
from web_console.gateway.session import GatewaySession
from web_console.views.requests import console_of, form_of, now_ms, page, root_of
from web_console.views.streams import event_stream

_KINDS: Final = ("trigger", "subscription")
_NOTICES: Final = {
    "pause": "Deliveries are paused. Events wait in the log.",
    "resume": "Deliveries continue.",
    "replay": "Events are delivered again from there. A paused one delivers them when it is resumed.",
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


async def stream(request: Request, session: GatewaySession) -> Response:
    """The part of the page that changes by itself, as server-sent events."""
    _path(request)  # of another kind: an answer, not a stream that ends

    async def read() -> tuple[bytes, float]:
        begun_s = time.monotonic()
        details = await _details(request, session)
        took_s = time.monotonic() - begun_s
        html = console_of(request).render(
            "receiver_part.html",
            here=_here(request),
            source=_source(request, details),
            session=session,
            details=details,
            may_write=await _may_write(request, session),
        )
        return server_event("html", html), took_s

    return event_stream(session, repeated(request, session, read))


async def _may_write(request: Request, session: GatewaySession) -> bool:
    return await session.may("update", str(request.path_params["namespace"]))


def _here(request: Request) -> str:
    """Return the path of the page."""
    parts = (quote(str(request.path_params[name]), safe="") for name in ("kind", "namespace", "name"))
    return f"{root_of(request)}/map/{'/'.join(parts)}"


def _source(request: Request, details: Details) -> str:
    """Return the path of the page of the Broker or Channel."""
    parts = (details.source_kind, str(request.path_params["namespace"]), details.source)
    return f"{root_of(request)}/sources/{'/'.join(quote(part, safe='') for part in parts)}"


async def _details(request: Request, session: GatewaySession) -> Details:
    path = _path(request)
    document = await session.api.get(path)
    return details_of(document, await session.api.get(f"{path}/deliveries"))


def _options(request: Request, action: str, form: Mapping[str, str]) -> Document:
    """Return the body of the request to the API.

    Raises:
        ValueError: a field of the form is not valid.
    """
    if action == "redrive" and form.get("which") in {"selected", "cancel"}:
        return {"cancel": True} if form["which"] == "cancel" else {"events": selected(form)}
    if action != "replay":
        return {}
    if form.get("name", "").strip() != request.path_params["name"]:
        message = "Nothing is delivered again: type the name to confirm."
        raise ValueError(message)
    return {"start": start_of(form, now_ms())}


def _redriven(answer: Document) -> str:
    events, cancelled = answer.get("events"), answer.get("cancelled")
    if isinstance(cancelled, int):
        return f"{cancelled:,} {'event is' if cancelled == 1 else 'events are'} not delivered again."
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
    details = await _details(request, session)
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
        here=_here(request),
        source=_source(request, details),
        details=details,
        may_write=await _may_write(request, session),
        typed={name: (form or {}).get(name, "") for name in _TYPED},
        problem=problem,
        notice=notice,
        status=code,
    )
