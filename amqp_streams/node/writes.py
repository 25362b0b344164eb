"""States on their way to the disk, and what follows when they are there. Spec: Event Streams 4.5.2 (an epoch is recorded, then told)."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from amqp_streams.errors import StorageError
from amqp_streams.storage.ports import States

Then: TypeAlias = Callable[[StorageError | None, int], None]
"""Called with why the write failed, None if it did not, and the time."""


class Writes:
    """The writes that somebody waits for."""

    def __init__(self, states: States) -> None:
        self._states = states
        self._waiting: dict[int, Then] = {}

    def write(self, changes: Mapping[str, bytes | None], then: Then | None = None) -> None:
        """Write these values together; `then` is called when they are durable, or could not be made so.

        Raises:
            StorageError: there is no room for more keys; nothing was written.
        """
        try:
            number = self._states.write(changes)
        except ValueError as error:
            raise StorageError(str(error)) from error
        if then is not None:
            self._waiting[number] = then

    def ended(self, number: int, failure: StorageError | None, now_ms: int) -> None:
        """A write ended."""
        then = self._waiting.pop(number, None)
        if then is not None:
            then(failure, now_ms)
