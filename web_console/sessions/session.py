"""[io] A session: the connection of one person to the node, and what is shared by all views of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from amqp_streams.client import Client, RetryPolicy, SaslOptions, TlsOptions, connect
from web_console.figures.watching import Watcher
from web_console.settings import ConsoleSettings

REQUESTS_MAX: Final = 8
"""Requests of a session at the same time. More of them wait."""
WAITING_MAX: Final = 8
"""Requests of a session that wait. More are refused, so that one session cannot use up the connections: a
browser opens six to one host.
"""
STREAMS_MAX: Final = 12
"""Open streams (live figures and tails) of a session: browsers open few more than six to one host."""
_LOGIN_S: Final = 10.0
# A request of a page must fail soon while the node is away. The next request begins anew.
_RETRY: Final = RetryPolicy(elapsed_max_ms=2_000, wait_max_ms=500)


class TooManyRequestsError(Exception):
    """The session has as many requests or open streams as it may have."""


class Session:
    """The session of one person."""

    def __init__(self, client: Client, user: str | None, csrf: str) -> None:
        self.client: Final = client
        self.user: Final = user
        self.csrf: Final = csrf
        self.kept: Final[dict[str, Any]] = {}
        """What views keep for their next request."""
        self.watcher: Final = Watcher(client)
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
        """Close the streams and the connection."""
        self.end_streams()
        await self.watcher.close()
        await self.client.close()


async def log_in(
    settings: ConsoleSettings, *, user: str | None, password: str | None, token: str | None, csrf: str
) -> Session:
    """Connect to the node as a user, with a token, or anonymously.

    Raises:
        AuthenticationError, ConnectError, TimedOutError.
    """
    tls = TlsOptions(ca_file=settings.ca_file) if settings.ca_file is not None else None
    mechanisms = ("ANONYMOUS",) if user is None and token is None else None
    client = connect(
        settings.url,
        user=user,
        password=password,
        tls=tls,
        sasl=SaslOptions(token=token, mechanisms=mechanisms, plain_without_tls=settings.plain_without_tls),
        retry=_RETRY,
        timeout=_LOGIN_S,
    )
    try:
        await client.connect()
    except BaseException:
        await client.close()
        raise
    return Session(client, user, csrf)
