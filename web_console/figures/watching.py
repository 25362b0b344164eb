"""[io] Reads the figures of logs once a second, for all open views of a session.

Laws: it asks the node only while a view is open. However many views are open, it sends one request a second
for logs, and one for each group that a view shows.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from amqp_streams.client import AuthenticationError, Client, LogExtent
from amqp_streams.errors import AmqpStreamsError
from web_console.figures.rates import History
from web_console.showing.words import sentence

LOGS_MAX: Final = 100
"""Logs of one view."""
_HISTORIES_MAX: Final = 400
"""Logs and partitions of which a session keeps rates."""
PERIOD_S: Final = 1.0
_ASK_S: Final = 5.0


@dataclass(eq=False)
class View:
    """An open view: the logs that it shows, and whether it needs the rate of each partition."""

    logs: frozenset[str]
    partitions: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Latest:
    """What was read last. `problem`: why nothing could be read; None: the node answered."""

    extents: dict[str, LogExtent] = field(default_factory=dict)
    problem: str | None = None
    refused: bool = False


class Watcher:
    """The figures of a session."""

    def __init__(self, client: Client) -> None:
        self._client: Final = client
        self._views: Final[set[View]] = set()
        self._histories: Final[dict[tuple[str, str], History]] = {}
        self._task: asyncio.Task[None] | None = None
        self.latest = Latest()

    @asynccontextmanager
    async def view(self, logs: frozenset[str], *, partitions: bool = False) -> AsyncIterator[View]:
        """Open a view. Its `changed` is set whenever `latest` has changed."""
        view = View(logs, partitions)
        self._views.add(view)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            yield view
        finally:
            self._views.discard(view)

    def history(self, log: str, partition: str = "") -> History:
        """The rates of a log, or of one of its partitions."""
        return self._histories.get((log, partition), History())

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _watch(self) -> None:
        while self._views:
            begun = time.monotonic()
            await self._read()
            for view in self._views:
                view.changed.set()
            await asyncio.sleep(max(0.1, PERIOD_S - (time.monotonic() - begun)))

    async def _read(self) -> None:
        logs = sorted(frozenset[str]().union(*(view.logs for view in self._views)))
        try:
            extents = await self._client.extents(logs, missing_ok=True, timeout=_ASK_S) if logs else {}
        except AmqpStreamsError as error:
            self.latest = Latest(
                self.latest.extents,
                sentence(error, self._client.address),
                refused=isinstance(error, AuthenticationError),
            )
            return
        now = time.monotonic()
        detailed = frozenset[str]().union(*(view.logs for view in self._views if view.partitions))
        for name, extent in extents.items():
            self._note(name, "", now, sum(each.next for each in extent.partitions))
            if name in detailed:
                for each in extent.partitions:
                    self._note(name, each.partition, now, each.next)
        self.latest = Latest(extents)

    def _note(self, log: str, partition: str, now: float, count: int) -> None:
        key = (log, partition)
        # Last used last: the first one is removed if there are too many.
        history = self._histories.pop(key, None) or History()
        self._histories[key] = history
        history.add(now, count)
        if len(self._histories) > _HISTORIES_MAX:
            del self._histories[next(iter(self._histories))]
