"""[io] Reads the figures of a node for all open views of a session: those of logs once a second.

Laws: it asks the node only while a view is open. However many views are open, it sends one request a second
for logs, and one every two seconds for each question (a group, the connections, the node) that views have.
It reads at most `PARTITIONS_A_SECOND`, so that many partitions cost no more than few.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from amqp_streams.client import AuthenticationError, Client, ClosedError, LogExtent, TimedOutError
from amqp_streams.errors import AmqpStreamsError
from web_console.figures.rates import History
from web_console.figures.trends import Trend
from web_console.showing.words import sentence

LOGS_MAX: Final = 100
"""Logs of one view."""
_HISTORIES_MAX: Final = 400
"""Rates of logs that a session keeps: two of each log."""
_PARTITIONS_MAX: Final = 2048
"""Rates of partitions that a session keeps: those of two of the largest logs."""
PARTITIONS_A_SECOND: Final = 200
"""How many partitions are read in a second. Figures of more partitions are read less often: a reading of
1,000 partitions, with their rows, takes about 30 ms of CPU, so it comes every five seconds."""
OUT: Final = "out"
"""In the place of a partition: the events that consumers got from the log."""
_TRENDS_MAX: Final = 400
"""Trends of one question."""
PERIOD_S: Final = 1.0
QUESTION_S: Final = 2.0
"""How often a question is asked."""
_ASK_S: Final = 5.0


Key = tuple[str, ...]
"""What identifies a question: views with the same key get the same answer."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request that is sent while a view is open.

    `figures`: the figures of an answer whose trends are kept, by name.
    """

    key: Key
    ask: Callable[[Client], Awaitable[object]]
    figures: Callable[[object], dict[str, float]] = lambda _answer: {}


@dataclass(slots=True)
class Asked:
    """The last answer to a question, and the error of the last request. `at`: when, by a monotonic clock."""

    at: float = 0.0
    answer: object = None
    error: AmqpStreamsError | None = None
    trends: dict[str, Trend] = field(default_factory=dict)


@dataclass(eq=False)
class View:
    """An open view: the logs that it shows, whether it needs the rate of each partition, and its question."""

    logs: frozenset[str]
    partitions: bool = False
    question: Question | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Latest:
    """What was read last. `problem`: why nothing could be read; None: the node answered."""

    extents: dict[str, LogExtent] = field(default_factory=dict)
    problem: str | None = None
    refused: bool = False


def seconds_between(extents: Mapping[str, LogExtent]) -> float:
    """Return the time between two readings of these logs: more if they have many partitions."""
    return max(1.0, sum(len(extent.partitions) for extent in extents.values()) / PARTITIONS_A_SECOND)


class Watcher:
    """The figures of a session."""

    def __init__(self, client: Client) -> None:
        self._client: Final = client
        self._views: Final[set[View]] = set()
        self._histories: Final[dict[tuple[str, str], History]] = {}
        self._of_partitions: Final[dict[tuple[str, str], History]] = {}
        self._asked: Final[dict[Key, Asked]] = {}
        self._task: asyncio.Task[None] | None = None
        self.latest = Latest()

    @asynccontextmanager
    async def view(
        self,
        logs: frozenset[str] = frozenset(),
        *,
        partitions: bool = False,
        question: Question | None = None,
    ) -> AsyncIterator[View]:
        """Open a view. Its `changed` is set whenever `latest` or the answer to its question has changed."""
        view = View(logs, partitions, question)
        self._views.add(view)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            yield view
        finally:
            self._views.discard(view)
            # The next view begins anew: its trends start with it.
            kept = {each.question.key for each in self._views if each.question is not None}
            for key in self._asked.keys() - kept:
                del self._asked[key]

    def asked(self, key: Key) -> Asked:
        """The last answer to a question."""
        return self._asked.get(key, Asked())

    def history(self, log: str, partition: str = "") -> History:
        """The rates of a log, of what consumers got from it (`OUT`), or of one of its partitions."""
        return self._kept(partition).get((log, partition), History())

    def _kept(self, partition: str) -> dict[tuple[str, str], History]:
        return self._histories if partition in {"", OUT} else self._of_partitions

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
            await self._ask_questions()
            for view in self._views:
                view.changed.set()
            period_s = PERIOD_S * seconds_between(self.latest.extents)
            await asyncio.sleep(max(0.1, period_s - (time.monotonic() - begun)))

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
            if extent.events_out is not None:
                self._note(name, OUT, now, extent.events_out)
            if name in detailed:
                for each in extent.partitions:
                    self._note(name, each.partition, now, each.next)
        self.latest = Latest(extents)

    async def _ask_questions(self) -> None:
        """Ask the questions that are due, at the same time: a slow answer delays no other one."""
        questions = {view.question.key: view.question for view in self._views if view.question is not None}
        now = time.monotonic()
        due = [
            each
            for each in questions.values()
            # A little earlier: the loop does not run at exact times.
            if now - self._asked.setdefault(each.key, Asked()).at >= QUESTION_S - PERIOD_S / 2
        ]
        await asyncio.gather(*(self._ask(each, self._asked[each.key]) for each in due))

    async def _ask(self, question: Question, asked: Asked) -> None:
        asked.at = time.monotonic()
        try:
            async with asyncio.timeout(_ASK_S):
                answer = await question.ask(self._client)
        except TimeoutError:
            asked.error = TimedOutError()
        except AmqpStreamsError as error:
            asked.error = error
            if isinstance(error, AuthenticationError | ClosedError):
                self.latest = Latest(self.latest.extents, sentence(error), refused=True)
        else:
            asked.answer, asked.error = answer, None
            for name, value in question.figures(answer).items():
                if name in asked.trends or len(asked.trends) < _TRENDS_MAX:
                    asked.trends.setdefault(name, Trend()).add(value)

    def _note(self, log: str, partition: str, now: float, count: int) -> None:
        key, kept = (log, partition), self._kept(partition)
        # Last used last: the first one is removed if there are too many.
        history = kept.pop(key, None)
        if history is None:
            # Only the latest rate of a partition is shown.
            history = History() if kept is self._histories else History(rates=deque(maxlen=1))
        kept[key] = history
        history.add(now, count)
        if len(kept) > (_HISTORIES_MAX if kept is self._histories else _PARTITIONS_MAX):
            del kept[next(iter(kept))]
