"""Events that have no outcome yet, and what their sender waits for."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Final

from amqp_streams.client.errors import SendError
from amqp_streams.client.producing.outbox import FAILURES_KEPT, Entry
from amqp_streams.errors import AmqpStreamsError


@dataclass(frozen=True, slots=True)
class Receipt:
    """The event is durable in its log.

    `attempts`: how often it was sent. If more than once, it may be stored more than once, unless the producer
    has an id.
    """

    attempts: int


class Pending(Awaitable[Receipt]):
    """An event without an outcome yet. Await it for its receipt. Raises what `Producer.send` raises."""

    __slots__ = ("_entry",)

    def __init__(self, entry: Entry) -> None:
        self._entry: Final = entry

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._entry.outcome is not None

    def __await__(self) -> Generator[object, None, Receipt]:
        entry = self._entry
        while entry.outcome is None:
            yield from _outcome_of(entry).__await__()
        if isinstance(entry.outcome, AmqpStreamsError):
            raise entry.outcome
        return Receipt(entry.attempts)


async def outcomes(entries: Sequence[Entry], timeout: float | None) -> None:
    """Wait until all entries have their outcomes. Raises TimeoutError after `timeout` seconds."""
    async with asyncio.timeout(timeout):
        for entry in entries:
            while entry.outcome is None:
                await _outcome_of(entry)


def failure_of(entries: Sequence[Entry]) -> SendError | None:
    """Return the error of a `send_many` with these entries; None if all were accepted."""
    failed = [
        (index, (entry.event, entry.outcome))
        for index, entry in enumerate(entries)
        if isinstance(entry.outcome, AmqpStreamsError)
    ]
    if not failed:
        return None
    shown = failed[:FAILURES_KEPT]
    return SendError([failure for _, failure in shown], len(failed), [index for index, _ in shown])


def _outcome_of(entry: Entry) -> "asyncio.Future[None]":
    """Return a future that is done when the entry has its outcome."""
    future = asyncio.get_running_loop().create_future()
    # Several tasks may await one event, so earlier callbacks are kept.
    entry.on_outcome = _chain(entry.on_outcome, future)
    return future


def _chain(earlier: Callable[[], None] | None, future: "asyncio.Future[None]") -> Callable[[], None]:
    def wake() -> None:
        if earlier is not None:
            earlier()
        # The task that waited may be cancelled.
        if not future.done():
            future.set_result(None)

    return wake
