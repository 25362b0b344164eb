"""[io] Which events of a log the query of a request chooses, and why they cannot be read."""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from starlette.requests import Request

from amqp_streams.client import LinkRefusedError, LogExtent, PartitionExtent
from web_console.sessions.session import Session
from web_console.showing.browsing import COUNT_DEFAULT, COUNT_MAX, From, offsets_of, read_together
from web_console.showing.numbers import bounded
from web_console.showing.times import time_ms
from web_console.showing.words import sentence
from web_console.views.reading import Chosen, SlowError
from web_console.views.requests import now_ms

FILTER_MAX: Final = 4096
"""Characters of a filter."""
FILTER_TOO_LONG: Final = f"The filter has more than {FILTER_MAX:,} characters."
POSITION: Final = re.compile(r"^filter [^,]*, position (\d+): ")
"""How the node names the position of an error in a filter."""
T = TypeVar("T")


async def read_chosen(
    request: Request, session: Session, extent: LogExtent, read: Callable[[Chosen], Awaitable[T]]
) -> tuple[T | None, str]:
    """Return what `read` returns for the chosen events, or None and why they cannot be read."""
    query = request.query_params
    partition, sql = query.get("partition", ""), query.get("where", "").strip()
    parts = [each for each in extent.partitions if partition in {"", each.partition}]
    if len(sql) > FILTER_MAX:
        return None, FILTER_TOO_LONG
    if not parts:
        return None, f"The log has no partition {partition[:40]!r}."
    parts = read_together(parts, offsets_of(query.get("mark", "")))
    if not parts:
        return None, "The link to this page names no partition of the log."
    log, count = request.path_params["log"], bounded(query.get("count"), COUNT_DEFAULT, COUNT_MAX)
    try:
        where, starts = await _starts(request, session, log, parts)
        return await read(Chosen(log, parts, where, starts, count, sql)), ""
    except SlowError:
        return None, "Reading took too long. Choose a partition, a later start, or fewer events."
    except (ValueError, LinkRefusedError) as error:
        return None, without_position(sentence(error))


async def _starts(
    request: Request, session: Session, log: str, parts: Sequence[PartitionExtent]
) -> tuple[From, dict[str, int]]:
    """Return where a page begins.

    Raises:
        ValueError: the offset or time is not valid.
    """
    query = request.query_params
    given = query.get("from", "")
    where = From(given) if given in set(From) else From.LATEST
    at = query.get("at", "").strip()
    if where in {From.AFTER, From.BEFORE}:
        return where, offsets_of(query.get("mark", ""))
    if where is From.OFFSET:
        if not (at.isascii() and at.isdigit() and len(at) <= 16):
            message = f"{at[:40]!r} is not an offset: give a number such as 42"
            raise ValueError(message)
        return where, {each.partition: int(at) for each in parts}
    if where is From.TIME:
        chosen = [each.partition for each in parts]
        return where, await session.client.offset_at(log, chosen, time_ms(at, now_ms()), timeout=10)
    return where, {}


def without_position(words: str) -> str:
    """Return the words of an error in a filter without its position: a page shows it below the filter."""
    words = POSITION.sub("", words[:1].lower() + words[1:])
    return words[:1].upper() + words[1:]
