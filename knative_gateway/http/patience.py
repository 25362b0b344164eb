"""How long a connection waits for its client, and when it has waited too long. Pure.

Each time limit applies only while the gateway waits for the client. Times are seconds of a clock that never
goes back.
"""

import sys
from enum import Enum
from typing import Final

LINGER_S: Final = 2.0
"""After a refusal, the connection reads and drops bytes of the client for this time. A reset would destroy
the refusal before the client reads it.
"""
STALLED_S: Final = 300.0
"""A client that does not read its answer for this time is disconnected."""


class Late(Enum):
    """Why a connection ends."""

    LINGERED = "the client had time to read the refusal"
    UNREAD = "the client does not read its answer"
    INCOMPLETE = "the request takes too long"
    IDLE = "no request came"


class Patience:
    """Since when the gateway waits for a client, and for what."""

    __slots__ = (
        "_is_expired",
        "_lingers_until",
        "_stalled_since",
        "_unsent",
        "_waiting_for",
        "idle_since",
        "waiting_since",
    )

    def __init__(self) -> None:
        self.waiting_since: float | None = None
        """Since when the gateway waits for a complete request, or for the first request."""
        self._waiting_for = 0
        """The number of the request for which the gateway waits."""
        self.idle_since: float | None = None
        """When `late` first noticed that no request is open; None also after each answer."""
        self._is_expired = False
        self._unsent = 0
        self._stalled_since = 0.0
        self._lingers_until: float | None = None

    @property
    def lingers(self) -> bool:
        """Whether the connection only waits until the client has read the last answer."""
        return self._lingers_until is not None

    def request(self, number: int, now_s: float) -> None:
        """A part of this request has arrived.

        The time of a request begins with its first byte. Further bytes do not extend it, so a client that
        sends one byte at a time is cut off as well.
        """
        if self.waiting_since is None or self._waiting_for != number:
            self.waiting_since, self._waiting_for = now_s, number

    def stall(self, now_s: float) -> None:
        """The client does not read its answers."""
        # The largest number: the first look then notices progress and takes the real size of the buffer.
        self._unsent, self._stalled_since = sys.maxsize, now_s

    def linger(self, now_s: float) -> None:
        """The last answer was sent."""
        self._lingers_until = now_s + LINGER_S

    def late(
        self,
        now_s: float,
        *,
        request_s: float,
        idle_s: float,
        unsent: int | None,
        is_paused: bool,
        is_open: bool,
    ) -> Late | None:
        """Return why the connection must end now; None: it need not.

        `unsent`: bytes that the client has not read; None: it reads. `is_paused`: the gateway does not read.
        `is_open`: a request is not answered.
        """
        if self._lingers_until is not None:
            return Late.LINGERED if now_s >= self._lingers_until else None
        if unsent is not None:
            return self._unread(now_s, unsent)
        if is_paused:
            return None
        if self.waiting_since is not None:
            return Late.INCOMPLETE if self.waiting_since < now_s - request_s else None
        if is_open:
            self.idle_since = None
            return None
        return self._idle(now_s, idle_s)

    def _unread(self, now_s: float, unsent: int) -> Late | None:
        # Progress counts, not the total time: a slow reader of a large answer stays connected as long as the
        # buffer shrinks.
        if unsent < self._unsent:
            self._unsent, self._stalled_since = unsent, now_s
        elif self._stalled_since < now_s - STALLED_S:
            return Late.UNREAD
        return None

    def _idle(self, now_s: float, idle_s: float) -> Late | None:
        if self.idle_since is None:
            self.idle_since, self._is_expired = now_s, False
        elif self.idle_since < now_s - idle_s:
            # Unread bytes of a request may be in the socket. They are read before the next call.
            if self._is_expired:
                return Late.IDLE
            self._is_expired = True
        return None
