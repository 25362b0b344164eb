"""Writes of states in flight, and their callbacks.

Spec: Event Streams 4.5.2 (an epoch is recorded, then answered).
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from amqp_streams.errors import StorageError
from amqp_streams.storage.ports import States

Then: TypeAlias = Callable[[StorageError | None, int], None]
"""Called with the error of the write, or None, and the time."""


class Writes:
    """The writes with a callback."""

    def __init__(self, states: States) -> None:
        self._states = states
        self._waiting: dict[int, Then] = {}

    def write(self, changes: Mapping[str, bytes | None], then: Then | None = None) -> None:
        """Write these values together; `then` is called when they are durable, or when the write failed.

        Raises:
            StorageError: the limit of keys is reached; nothing was written.
        """
        try:
            number = self._states.write(changes)
        except ValueError as error:
            raise StorageError(str(error)) from error
        if then is not None:
            self._waiting[number] = then

    def ended(self, number: int, failure: StorageError | None, now_ms: int) -> None:
        """Record that a write ended."""
        then = self._waiting.pop(number, None)
        if then is not None:
            then(failure, now_ms)
