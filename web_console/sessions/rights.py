"""[io] What a person may do with a log, so that pages show no action that the node would refuse.

The node decides: an action that is shown by mistake is refused in words.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from amqp_streams.client import LinkRefusedError, ManagementError
from web_console.sessions.session import Session

KEPT_S: Final = 15.0
"""After a change of the rules, pages follow within this time."""
KEPT_MAX: Final = 100
_KEY: Final = "rights"
_Kept = dict[str, tuple[float, frozenset[str] | None]]


def of_log(
    view: Callable[[Request, Session], Awaitable[Response]],
) -> Callable[[Request, Session], Awaitable[Response]]:
    """Return the view of a log with the person's rights on it for its template."""

    async def with_rights(request: Request, session: Session) -> Response:
        request.state.rights = await rights(session, request.path_params["log"])
        return await view(request, session)

    return with_rights


async def rights(session: Session, log: str) -> frozenset[str] | None:
    """Return the rights on a log; None: they are not known, as with a node of an earlier version.

    Raises:
        AmqpStreamsError: the node does not answer.
    """
    kept: _Kept = session.kept.setdefault(_KEY, {})
    now_s = time.monotonic()
    known = kept.get(log)
    if known is not None and now_s < known[0]:
        return known[1]
    try:
        answer = await session.client.management.describe_node(parts=["rights"], log=log, timeout=10)
        found = answer.log_rights
    except (ManagementError, LinkRefusedError):
        found = None
    if len(kept) >= KEPT_MAX:
        kept.clear()
    kept[log] = now_s + KEPT_S, found
    return found
