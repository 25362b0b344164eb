"""An event loop on its own thread, which runs the asyncio client for the blocking client."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import uvloop

from amqp_streams.client.errors import ClosedError, TimedOutError
from amqp_streams.client.producing.outbox import Entry
from amqp_streams.client.producing.pending import Receipt
from amqp_streams.client.producing.producer import Producer
from amqp_streams.errors import AmqpStreamsError

_T = TypeVar("_T")


class Background:
    """An event loop on its own daemon thread."""

    def __init__(self) -> None:
        self.loop: Final = uvloop.new_event_loop()
        # A daemon: a program that forgets to close its client must still be able to end.
        self._thread: Final = threading.Thread(target=self._run, name="amqp-streams-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run `work` on the loop's thread and wait for its result.

        An exception in the waiting thread, for example KeyboardInterrupt, cancels `work`. Raises: ClosedError
        if the thread was stopped, and what `work` raises.
        """
        if self.loop.is_closed():
            # A coroutine that never runs would cause a warning.
            work.close()
            message = "the client is closed"
            raise ClosedError(message)
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        # Ctrl-C must not leave the call running on the loop's thread.
        except BaseException:
            future.cancel()
            raise

    def schedule(self, callback: Callable[..., object], *arguments: object) -> None:
        """Schedule a call of `callback` on the loop's thread and return without waiting for it.

        Raises:
            ClosedError if the thread was stopped.
        """
        try:
            self.loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            message = "the client is closed"
            raise ClosedError(message) from None

    def stop(self) -> None:
        """Stop the loop and wait for the thread to end. May be called twice."""
        if self.loop.is_closed():
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Pending:
    """An event without an outcome yet.

    `result` waits for its receipt and raises the errors of `Producer.send`.
    """

    __slots__ = ("_entry", "_known", "_producer", "_room")

    def __init__(self, entry: Entry, room: threading.Semaphore, producer: Producer) -> None:
        self._entry: Final = entry
        self._producer: Final = producer
        self._room: Final = room
        self._known: Final = threading.Event()

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._entry.outcome is not None

    def result(self, timeout: float | None = 30.0) -> Receipt:
        """Wait at most `timeout` seconds for the receipt.

        Raises:
            RejectedError, ReleasedError, ConnectionLostError, LinkError, TimedOutError, ClosedError.
        """
        if not self._known.wait(timeout):
            obstacle = self._producer.obstacle
            message = f"waiting for an outcome took longer than {timeout} s" + (
                f": {obstacle}" if obstacle else ""
            )
            raise TimedOutError(message)
        if isinstance(self._entry.outcome, AmqpStreamsError):
            raise self._entry.outcome
        return Receipt(self._entry.attempts)

    def wake(self) -> None:
        """Report that the outcome is known. Called on the loop's thread."""
        # First the room: a thread that `result` wakes may post at once.
        self._room.release()
        self._known.set()
