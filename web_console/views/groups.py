"""[io] Consumer groups and cursors: their positions, and moving them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from amqp_streams.client import (
    EARLIEST,
    LATEST,
    AfterOffset,
    AfterTime,
    Client,
    CursorInfo,
    CursorPosition,
    GroupInfo,
    ManagementError,
    PartitionExtent,
    Start,
)
from web_console.figures.watching import Asked, Question
from web_console.sessions.session import Session
from web_console.showing.moves import Move, moves
from web_console.showing.paging import number_of, page_of
from web_console.showing.times import time_ms
from web_console.showing.words import sentence
from web_console.views.live_parts import live_part
from web_console.views.log import extent_of
from web_console.views.requests import console_of, form_of, now_ms, page, root_of

_NAME_ONE: Final = "Name a group or a cursor."


@dataclass(frozen=True, slots=True)
class Reader:
    """A group, or the cursor of a durable subscription (`is_group` False, `name` its id)."""

    log: str
    name: str
    is_group: bool
    title: str
    active: bool
    waiting: int | None
    updated_ms: int | None
    positions: Sequence[CursorPosition]
    user: str = ""
    unknown: str = ""
    """Why its members are not known; empty: they are."""

    @property
    def lag(self) -> int | None:
        """Events to come, in all partitions; None if unknown."""
        known = [each.lag for each in self.positions if each.lag is not None]
        return sum(known) if known else None

    @property
    def members(self) -> int:
        """Members that own a partition."""
        return len({each.member for each in self.positions if each.member is not None})


def _of_group(one: GroupInfo) -> Reader:
    waiting = one.waiting if one.members_known else None
    return Reader(
        one.log, one.name, True, one.name, one.active, waiting, one.updated_ms, one.positions,
        unknown=_unknown(one),
    )  # fmt: skip


def _of_cursor(one: CursorInfo) -> Reader:
    title = f"{one.link} of {one.container}"
    return Reader(
        one.log, one.id, False, title, one.active, None, one.updated_ms, one.positions, one.user or "",
        unknown=_unknown(one),
    )  # fmt: skip


def _unknown(one: GroupInfo | CursorInfo) -> str:
    return "" if one.members_known else one.members_reason or "the node does not say why"


async def show(request: Request, session: Session) -> Response:
    """A page of all groups and subscriptions, or of those of one log."""
    log = request.query_params.get("log", "") or None
    management = session.client.management
    found = await management.query_groups(log, timeout=10)
    cursors = await management.list_cursors(log, timeout=10)
    readers = [_of_group(one) for one in found.groups]
    readers += [_of_cursor(one) for one in cursors if one.group is None]
    readers.sort(key=lambda reader: (reader.log, not reader.is_group, reader.title))
    here = page_of(readers, number_of(request.query_params.get("page")))
    reasons = sorted({each.unknown for each in here.items if each.unknown})
    return page(
        request,
        "groups.html",
        session,
        view="groups",
        log=log or "",
        page=here,
        reasons=reasons,
        incomplete=found.incomplete,
    )


async def one(request: Request, session: Session) -> Response:
    """One group or subscription."""
    return _one(request, session, await _reader(request, session))


def _one(
    request: Request,
    session: Session,
    reader: Reader,
    *,
    preview: Sequence[Move] | None = None,
    typed: Mapping[str, str] | None = None,
    problem: str = "",
    notice: str = "",
) -> Response:
    names = ("to", "at", "partition")
    return page(
        request,
        "group.html",
        session,
        view="groups",
        reader=reader,
        lags={},
        preview=preview,
        typed={name: (typed or {}).get(name, "") for name in names},
        problem=problem,
        notice=notice,
        status=400 if problem else 200,
    )


async def _reader(request: Request, session: Session) -> Reader:
    query, management = request.query_params, session.client.management
    log = query.get("log", "")
    if "group" in query:
        return _of_group(await management.describe_group(log, query["group"], timeout=10))
    if "cursor" in query:
        return _of_cursor(await management.describe_cursor(log, query["cursor"], timeout=10))
    raise HTTPException(404, _NAME_ONE)


async def stream(request: Request, session: Session) -> Response:
    """The positions of one group or subscription with its lag over time, as rows of a table."""
    query = request.query_params
    if not query.keys() & {"group", "cursor"}:
        raise HTTPException(404, _NAME_ONE)
    key = ("reader", query.get("log", ""), query.get("group", ""), query.get("cursor", ""))

    async def ask(_client: Client) -> object:
        return await _reader(request, session)

    def render(asked: Asked) -> str:
        if asked.error is not None:
            return console_of(request).render("gone_row.html", words=sentence(asked.error), width=6)
        lags = {name: trend.values for name, trend in asked.trends.items()}
        return console_of(request).render("positions.html", reader=asked.answer, lags=lags)

    return live_part(request, session, Question(key, ask, _lags), render)


def _lags(reader: object) -> dict[str, float]:
    """The lag of each partition, for the first ones."""
    assert isinstance(reader, Reader)
    return {each.partition: float(each.lag) for each in reader.positions if each.lag is not None}


async def reset(request: Request, session: Session) -> Response:
    """Show what a move would do, or move."""
    form = form_of(request)
    reader = await _reader(request, session)
    extent = await extent_of(session, reader.log)
    chosen = form.get("partition", "")
    parts = [each for each in extent.partitions if chosen in {"", each.partition}]
    try:
        start, targets = await _target(session, reader.log, form, parts)
        if form.get("step") != "move":
            return _one(request, session, reader, preview=moves(reader.positions, parts, targets), typed=form)
        await _move(session, reader, start, chosen or None)
    except (ValueError, ManagementError) as error:
        return _one(request, session, reader, typed=form, problem=sentence(error))
    return _one(request, session, await _reader(request, session), notice="The position is moved.")


async def _move(session: Session, reader: Reader, start: Start, partition: str | None) -> None:
    management = session.client.management
    move = management.reset_group if reader.is_group else management.reset_cursor
    await move(reader.log, reader.name, start, partition=partition, timeout=15)


async def _target(
    session: Session, log: str, form: Mapping[str, str], parts: Sequence[PartitionExtent]
) -> tuple[Start, dict[str, int]]:
    """Return where to begin, and the next event in each partition.

    Raises:
        ValueError: the offset or the time is not valid.
    """
    to, at = form.get("to", ""), form.get("at", "").strip()
    if not parts:
        message = "The log has no such partition."
        raise ValueError(message)
    if to == "earliest":
        return EARLIEST, {each.partition: each.earliest for each in parts}
    if to == "latest":
        return LATEST, {each.partition: each.next for each in parts}
    if to == "offset":
        if not (at.isascii() and at.isdigit() and len(at) <= 16):
            message = f"{at[:40]!r} is not an offset: give a number such as 42"
            raise ValueError(message)
        if not form.get("partition") and len(parts) > 1:
            message = "An offset belongs to one partition: choose it."
            raise ValueError(message)
        number = int(at)
        start: Start = AfterOffset(number - 1) if number else EARLIEST
        return start, {each.partition: number for each in parts}
    if to == "time":
        ms = time_ms(at, now_ms())
        chosen = [each.partition for each in parts]
        # The node continues with the first event that has a later time.
        return AfterTime(ms - 1), await session.client.offset_at(log, chosen, ms, timeout=10)
    message = "Choose where to continue."
    raise ValueError(message)


async def remove(request: Request, session: Session) -> Response:
    """Remove a group or subscription, if its name was typed."""
    reader, management = await _reader(request, session), session.client.management
    if form_of(request).get("name", "").strip() != reader.name:
        problem = "Nothing was removed: type the name to remove it."
        return _one(request, session, reader, problem=problem)
    delete = management.delete_group if reader.is_group else management.delete_cursor
    try:
        await delete(reader.log, reader.name, timeout=15)
    except ManagementError as error:
        return _one(request, session, reader, problem=sentence(error))
    return RedirectResponse(f"{root_of(request)}/groups", status_code=303)
