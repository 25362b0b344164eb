"""The states of one bucket in memory, and what the next transaction writes. Pure.

Laws: a write is reported only when a transaction that has it was committed. Writes end in their order.
"""

from collections.abc import Callable, Mapping
from typing import Final

from amqp_streams.errors import StorageError
from amqp_streams.storage.formats.state_values import StateValues


class BucketStates(StateValues):
    """See `States`."""

    def __init__(self, values: Mapping[str, bytes]) -> None:
        super().__init__(values)
        self.on_written: Callable[[int, StorageError | None], None] = lambda _number, _failure: None
        self.waiting: Final[dict[str, bytes | None]] = {}
        """The changes that no transaction has taken."""
        self._written = 0
        self._taken = 0
        self._ended = 0

    def write(self, changes: Mapping[str, bytes | None]) -> int:
        """See `States.write`."""
        self.change(changes)
        self.waiting.update(changes)
        self._written += 1
        return self._written

    @property
    def unwritten(self) -> bool:
        """Whether a write waits for a transaction."""
        return self._written > self._taken

    def take(self) -> dict[str, bytes | None]:
        """The changes for a transaction that begins now."""
        taken = dict(self.waiting)
        self.waiting.clear()
        self._taken = self._written
        return taken

    def put_back(self, changes: Mapping[str, bytes | None]) -> None:
        """The transaction was aborted: the next one takes its changes, unless later ones replaced them."""
        self.waiting.update({key: value for key, value in changes.items() if key not in self.waiting})
        self._taken = self._ended

    def committed(self) -> None:
        """The transaction that took the last changes was committed."""
        while self._ended < self._taken:
            self._ended += 1
            self.on_written(self._ended, None)
