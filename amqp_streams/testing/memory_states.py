"""States in memory: `storage/ports.py`'s `States`, whose writes end when the test, or its loop, says so.

They outlive a restart when they are handed to the next `MemoryStore(states=…)`; `survivors` has what a crash
would leave of them.
"""

from collections.abc import Callable, Mapping, Sequence

from amqp_streams.errors import StorageError
from amqp_streams.storage.formats.state_values import StateValues


class MemoryStates(StateValues):
    """Values by key.

    A write ends at `complete()`, which `defer`, if set, is given to call soon, unless they are `held`.
    """

    def __init__(self, values: Mapping[str, bytes] | None = None) -> None:
        super().__init__(values)
        self.on_written: Callable[[int, StorageError | None], None] = _ignore
        self.defer: Callable[[Callable[[], object]], object] | None = None
        """Calls soon what it is given, never at once: a loop's `call_soon`.

        Without one, writes wait for the test.
        """
        self.held = False
        """Whether writes wait for the test although there is a loop."""
        self.durable: dict[str, bytes] = dict(self.values)
        """What a crash would leave."""
        self.written = 0
        """Number of the last write."""
        self._waiting: list[int] = []
        self._failure: StorageError | None = None

    @property
    def waiting(self) -> Sequence[int]:
        """Numbers of the writes that have not ended."""
        return tuple(self._waiting)

    def write(self, changes: Mapping[str, bytes | None]) -> int:
        """See `States.write`."""
        self.change(changes)
        self.written += 1
        self._waiting.append(self.written)
        if self.defer and not self.held:
            self.defer(self.complete)
        return self.written

    def complete(self) -> None:
        """End every write that waits: well, or as `fail` has said."""
        ended, self._waiting = self._waiting, []
        failure = None
        if ended:
            failure, self._failure = self._failure, None
            if failure is None:
                self.durable = dict(self.values)
        for number in ended:
            self.on_written(number, failure)

    def fail(self, error: StorageError) -> None:
        """Make the writes that wait or, without any, the next ones, end with this error.

        Their values stay, and go with the next.
        """
        self._failure = error

    def survivors(self) -> "MemoryStates":
        """States that have what is durable and nothing else: those of the process after a crash."""
        return MemoryStates(self.durable)


def _ignore(number: int, failure: StorageError | None) -> None:
    pass
