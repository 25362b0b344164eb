"""Log lines about the store for operators: a full disk, a commit that does not end, a wrong clock.

Law: one log line for each change of state, in both directions. Reasons for which the node accepts no events
are also shown by `/readyz`.
"""

from typing import Final

import structlog

from amqp_streams.storage.ports import StoreFacts

COMMIT_STUCK_MS: Final = 10_000
"""A commit that takes longer than this many milliseconds: the disk does not answer."""
LOGS_NAMED_MAX: Final = 100
"""How many logs with timestamps in the future get a line of their own."""

log = structlog.get_logger("amqp_streams")


class StoreWatch:
    """Compares the store's figures with the last ones, at each tick."""

    def __init__(self) -> None:
        self._full = False
        self._away = False
        self._stuck = False
        self._jumped = False
        self._ahead: set[str] = set()

    def look(self, facts: StoreFacts, clock_ahead_ms: int) -> None:
        """Log what has changed.

        `clock_ahead_ms`: by how many milliseconds the system clock jumped ahead of the clock that retention
        uses.
        """
        if (facts.full is not None) != self._full:
            self._full = facts.full is not None
            if self._full:
                log.error("disk_full", reason=facts.full)
            else:
                log.info("disk_has_room")
        if (facts.away is not None) != self._away:
            self._away = facts.away is not None
            if self._away:
                log.error("store_away", reason=facts.away)
            else:
                log.info("store_answers")
        if (facts.commit_ms >= COMMIT_STUCK_MS) != self._stuck:
            self._stuck = not self._stuck
            if self._stuck:
                log.error("commit_stuck", milliseconds=facts.commit_ms)
            else:
                log.info("commit_ended")
        if (clock_ahead_ms > 0) != self._jumped:
            self._jumped = clock_ahead_ms > 0
            log.warning("clock_jumped" if self._jumped else "clock_trusted", ahead_ms=clock_ahead_ms)
        for name in sorted(facts.ahead_ms.keys() - self._ahead)[:LOGS_NAMED_MAX]:
            log.warning("timestamps_ahead", log=name, ahead_ms=facts.ahead_ms[name])
        self._ahead = set(facts.ahead_ms)


def hindrance(facts: StoreFacts) -> str | None:
    """Why the store accepts no events now; None if it accepts events."""
    if facts.full is not None:
        return facts.full
    if facts.away is not None:
        return facts.away
    if facts.commit_ms >= COMMIT_STUCK_MS:
        return f"the disk has not answered for {facts.commit_ms // 1000} seconds"
    return None
