"""[io] A session of one person: its token for forms, and the bounds on its requests and streams."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from web_console.sessions.logins import Tokens

REQUESTS_MAX: Final = 8
"""Requests of a session at the same time. More of them wait."""
WAITING_MAX: Final = 8
"""Requests of a session that wait. More are refused, so that one session cannot use up the connections: a
browser opens six to one host.
"""
STREAMS_MAX: Final = 12
"""Open streams (live figures and tails) of a session: browsers open few more than six to one host."""


class TooManyRequestsError(Exception):
    """The session has as many requests or open streams as it may have."""


class Visitor:
    """The session of one person, whatever the console shows."""

    def __init__(
        self, user: str | None, csrf: str, *, is_anonymous: bool, tokens: Tokens | None = None
    ) -> None:
        """`user`: the name that pages show, if it is known. `tokens`: renew the login."""
        self.user: Final = user
        self.csrf: Final = csrf
        self.is_anonymous: Final = is_anonymous
        self.hidden: frozenset[str] = frozenset()
        """The main views that the person has no right to see."""
        self._tokens: Final = tokens
        self.kept: Final[dict[str, Any]] = {}
        """What views keep for their next request."""
        self._room: Final = asyncio.Semaphore(REQUESTS_MAX)
        self._streams: Final[set[asyncio.Task[object]]] = set()
        self._waiting = 0
        self._ended = False

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold one of the session's requests.

        Raises:
            TooManyRequestsError: too many wait already.
        """
        if self._waiting >= WAITING_MAX:
            raise TooManyRequestsError
        self._waiting += 1
        try:
            await self._room.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._room.release()

    @property
    def is_over(self) -> bool:
        """Whether the login is not renewed any more."""
        return self._tokens is not None and self._tokens.is_over

    @property
    def has_room(self) -> bool:
        """Whether the session may open another stream."""
        return len(self._streams) < STREAMS_MAX and not self._ended

    @asynccontextmanager
    async def stream(self) -> AsyncIterator[None]:
        """Hold one of the session's streams. The stream is cancelled when the session ends.

        Raises:
            TooManyRequestsError: all are open.
        """
        task = asyncio.current_task()
        assert task is not None
        if not self.has_room:
            raise TooManyRequestsError
        self._streams.add(task)
        try:
            yield
        finally:
            self._streams.discard(task)

    def end_streams(self) -> None:
        """Close the streams, and open no others."""
        self._ended = True
        for task in list(self._streams):
            task.cancel()

    async def end(self) -> None:
        """Close the streams."""
        self.end_streams()
