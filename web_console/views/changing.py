"""[io] Creates, changes and deletes logs."""

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from amqp_streams.client import ManagementError
from amqp_streams.log_settings import BY_FIELD, log_name
from web_console.sessions.session import Session
from web_console.showing.setting_fields import fields_of, texts_of, to_create, values_of
from web_console.showing.words import sentence
from web_console.views.requests import form_of, page, root_of


async def draft(request: Request, session: Session) -> Response:
    """The form of a new log."""
    return _draft(request, session, {})


async def create(request: Request, session: Session) -> Response:
    """Create a log."""
    form = form_of(request)
    try:
        name = log_name(form.get("name", "").strip())
        values = values_of(form, create=True)
        await session.client.management.create_log(name, timeout=15, **to_create(values))
    except (ValueError, ManagementError) as error:
        return _draft(request, session, form, problem=sentence(error))
    return RedirectResponse(f"{root_of(request)}/logs/{name}", status_code=303)


def _draft(request: Request, session: Session, form: Mapping[str, str], *, problem: str = "") -> Response:
    return page(
        request,
        "create.html",
        session,
        view="logs",
        name=form.get("name", ""),
        fields=fields_of(form, create=True),
        problem=problem,
        status=400 if problem else 200,
    )


async def show(request: Request, session: Session) -> Response:
    """The settings of a log."""
    return await _settings(request, session)


async def change(request: Request, session: Session) -> Response:
    """Change the settings of a log."""
    log, form = request.path_params["log"], form_of(request)
    try:
        values = values_of(form, create=False)
        # Only what the person changed: another person may have changed the other settings meanwhile.
        changes = {
            BY_FIELD[field].name: value
            for field, value in values.items()
            if form.get(field, "").strip() != form.get(f"before-{field}")
        }
        if changes:
            await session.client.management.update_log(log, changes, timeout=15)
    except (ValueError, ManagementError) as error:
        return await _settings(request, session, typed=form, problem=sentence(error))
    notice = "The settings are changed." if changes else "You changed no setting."
    return await _settings(request, session, notice=notice)


async def delete(request: Request, session: Session) -> Response:
    """Delete a log, if its name was typed."""
    log = request.path_params["log"]
    if form_of(request).get("name", "").strip() != log:
        problem = "Nothing was deleted: type the name of the log to delete it."
        return await _settings(request, session, problem=problem)
    try:
        await session.client.management.delete_log(log, timeout=30)
    except ManagementError as error:
        return await _settings(request, session, problem=sentence(error))
    return RedirectResponse(f"{root_of(request)}/logs", status_code=303)


async def _settings(
    request: Request,
    session: Session,
    *,
    typed: Mapping[str, str] | None = None,
    problem: str = "",
    notice: str = "",
) -> Response:
    log = request.path_params["log"]
    info = await session.client.management.describe_log(log, timeout=10)
    stored = fields_of(texts_of(info.details), create=False)
    before = {each.name: each.value for each in stored}
    if typed is not None:
        # As they were when the person began to type.
        before = {name: typed.get(f"before-{name}", value) for name, value in before.items()}
    return page(
        request,
        "settings.html",
        session,
        view="logs",
        tab="settings",
        log=log,
        partitions=len(info.partitions),
        fields=stored if typed is None else fields_of(typed, create=False),
        before=before,
        problem=problem,
        notice=notice,
        status=400 if problem else 200,
    )
