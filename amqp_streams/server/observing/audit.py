"""Log lines and counters for refused requests and for changes by users.

Law: repeated refusals do not fill the log, but all of them are counted.
"""

from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Final

import structlog

from amqp_streams import names
from amqp_streams.streams.management import FORBIDDEN, Answer, Request
from service_parts.health.changes import Changes

LINES_MAX: Final = 20
"""How many lines about refusals are written in WINDOW_MS. The first line of the next window contains how many
were left out.
"""
WINDOW_MS: Final = 10_000
# Names come from clients: longer ones are cut, so that they do not fill the log.
_SHOWN_MAX: Final = 128
# Values of a request that are shown: the longest request of the node's own client has fewer.
_VALUES_MAX: Final = 16
_READING: Final = frozenset({"READ", "QUERY", names.EXTENTS})

log = structlog.get_logger("amqp_streams")


class Audit:
    """The audit of one node. `clock_ms`: a monotonic clock. `changes`: what is kept for people who ask."""

    def __init__(self, clock_ms: Callable[[], int], changes: Changes) -> None:
        self.changes: Final = changes
        self.refused_count = 0
        """Attaches, messages and requests that were refused because a right is missing."""
        self.deliveries_refused: Final[Counter[str]] = Counter()
        """Deliveries of producers that were refused, by condition. The conditions are those of the node."""
        self._clock_ms: Final = clock_ms
        self._window_ends_ms = 0
        self._lines = 0
        self._left_out = 0

    def refused(self, user: str | None, reason: str) -> None:
        """Count and log a request for which the user lacks the right."""
        self.refused_count += 1
        self._log_warning("access_refused", user, reason)

    def filter_refused(self, user: str | None, reason: str) -> None:
        """Log a filter that is malformed or exceeds a limit (FILTEX 7.1)."""
        self._log_warning("filter_refused", user, reason)

    def _log_warning(self, event: str, user: str | None, reason: str) -> None:
        now_ms = self._clock_ms()
        if now_ms >= self._window_ends_ms:
            self._window_ends_ms, self._lines = now_ms + WINDOW_MS, 0
        if self._lines >= LINES_MAX:
            self._left_out += 1
            return
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        log.warning(event, user=_shown(user), reason=reason, left_out=left_out)

    def managed(self, user: str | None, request: Request, answer: Answer) -> None:
        """Log a request to `$management` that was answered. Requests that only read are not logged."""
        if answer.status == FORBIDDEN:
            self.refused(user, answer.description)
        # A failed request changed nothing.
        elif request.operation not in _READING and answer.status < 300:
            what = {"operation": request.operation, "type": request.type, "name": request.name[:_SHOWN_MAX]}
            where = {"log": request.log[:_SHOWN_MAX]} if request.log else {}
            more = {key: value[:_SHOWN_MAX] for key, value in answer.audit.items()}
            said = {_text(key): _text(value) for key, value in islice(request.body.items(), _VALUES_MAX)}
            # The names of values come from the client: one could be that of a field of the line.
            asked = {"asked": ", ".join(f"{key} {value}" for key, value in said.items())} if said else {}
            log.info("managed", user=_shown(user), **what, **where, **more, **asked, status=answer.status)
            name, type_ = request.name[:_SHOWN_MAX], request.type[:_SHOWN_MAX] or names.LOG_TYPE
            self.changes.add(_cut(user), request.operation, type_, name, said | where | more)


def _text(value: object) -> str:
    if value is None:
        return "null"
    # Numbers and names only: a list or a map may be as large as a message.
    return str(value)[:_SHOWN_MAX] if isinstance(value, str | int | float) else "…"


def _cut(user: str | None) -> str | None:
    return None if user is None else user[:_SHOWN_MAX]


def _shown(user: str | None) -> str:
    return "" if user is None else user[:_SHOWN_MAX]
