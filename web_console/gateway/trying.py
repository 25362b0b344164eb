"""[io] The filter tester of a Trigger: filters are tried with stored events of its Broker, and nothing is
delivered.

The gateway evaluates the filters, with the code that selects events for subscribers.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from web_console.gateway.api import ApiError, status_of
from web_console.gateway.rows import collection
from web_console.gateway.session import GatewaySession
from web_console.gateway.trials import FiltersError, Row, filters_of, options_of, pointer_of, rows_of
from web_console.views.requests import form_of, page


async def show(request: Request, session: GatewaySession) -> Response:
    """The form, with the filters of the Trigger."""
    document = await session.api.get(_path(request))
    return _page(request, session, {"filters": filters_of(document)})


async def attempt(request: Request, session: GatewaySession) -> Response:
    """The form with results."""
    form = form_of(request)
    try:
        answer = await session.api.post(f"{_path(request)}/match", options_of(form))
    except FiltersError as error:
        return _page(request, session, form, problem=str(error), pointer=error.pointer, code=400)
    except ApiError as error:
        if error.code == 401:
            raise
        pointer = pointer_of(form.get("filters", "").strip(), str(error))
        return _page(request, session, form, problem=str(error), pointer=pointer, code=status_of(error))
    return _page(request, session, form, rows=rows_of(answer))


def _path(request: Request) -> str:
    namespace, name = (quote(str(request.path_params[part]), safe="") for part in ("namespace", "name"))
    return f"{collection('trigger', namespace)}/{name}"


def _page(
    request: Request,
    session: GatewaySession,
    form: Mapping[str, str],
    *,
    rows: Sequence[Row] | None = None,
    problem: str = "",
    pointer: str = "",
    code: int = 200,
) -> Response:
    return page(
        request,
        "trial.html",
        session,
        view="map",
        namespace=request.path_params["namespace"],
        name=request.path_params["name"],
        typed={name: form.get(name, "") for name in ("filters", "events", "partition")},
        rows=rows,
        problem=problem,
        pointer=pointer,
        status=code,
    )
