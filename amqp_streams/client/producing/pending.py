"""The outcome of one event that a producer sends: awaited, and the receipt if the event was accepted."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Final

from amqp_streams.client.producing.outbox import Entry
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
            future = asyncio.get_running_loop().create_future()
            # Several tasks may await one event, so earlier callbacks are kept.
            entry.on_outcome = _chain(entry.on_outcome, future)
            yield from future.__await__()
        if isinstance(entry.outcome, AmqpStreamsError):
            raise entry.outcome
        return Receipt(entry.attempts)


def _chain(earlier: Callable[[], None] | None, future: "asyncio.Future[None]") -> Callable[[], None]:
    def wake() -> None:
        if earlier is not None:
            earlier()
        # The task that waited may be cancelled.
        if not future.done():
            future.set_result(None)

    return wake
