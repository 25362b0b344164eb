"""Writes of states in flight, and their callbacks.

Spec: Event Streams 4.5.2 (an epoch is recorded, then answered).
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from amqp_streams.errors import StorageError
from amqp_streams.storage.ports import States

Then: TypeAlias = Callable[[StorageError | None, int], None]
"""Called with the error of the write, or None, and the time."""


class Wait:
    """The end of writes, for callers that answer only what is durable."""

    def __init__(self, *, over: bool = False) -> None:
        self.over = over
        self.failure: StorageError | None = None
        """Why the writes are not durable, after they are `over`."""
        self._then: Callable[[], None] | None = None

    def then(self, call: Callable[[], None]) -> None:
        """Call `call` when the writes are over: now, or later. A second call replaces the first."""
        if self.over:
            call()
        else:
            self._then = call

    def ended(self, failure: StorageError | None, _now_ms: int) -> None:
        """Record that the writes ended."""
        self.over, self.failure = True, failure
        if self._then is not None:
            self._then()


class Writes:
    """The writes with a callback."""

    def __init__(self, states: States) -> None:
        self._states = states
        self._waiting: dict[int, list[Then]] = {}
        self._last = self._ended = 0
        """Numbers of the last write, and of the last one that ended."""
        self._failed = False
        """Whether the last write that ended failed."""

    def write(self, changes: Mapping[str, bytes | None], then: Then | None = None) -> None:
        """Write these values together; `then` is called when they are durable, or when the write failed.

        Raises:
            StorageError: the limit of keys is reached; nothing was written.
        """
        try:
            self._last = self._states.write(changes)
        except ValueError as error:
            raise StorageError(str(error)) from error
        if then is not None:
            self._waiting.setdefault(self._last, []).append(then)

    def settled(self) -> Wait:
        """The end of all writes so far. Writes that failed are repeated."""
        if self._ended >= self._last:
            if not self._failed:
                return Wait(over=True)
            self.write({})
        wait = Wait()
        self._waiting.setdefault(self._last, []).append(wait.ended)
        return wait

    def ended(self, number: int, failure: StorageError | None, now_ms: int) -> None:
        """Record that a write ended."""
        if number >= self._ended:
            self._ended, self._failed = number, failure is not None
        for then in self._waiting.pop(number, ()):
            then(failure, now_ms)
