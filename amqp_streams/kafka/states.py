"""The states of a node whose logs are in Kafka: in memory, until the process ends. Pure.

Nothing that needs states which outlive the node is offered on Kafka, so nothing is lost with them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from amqp_streams.errors import StorageError
from amqp_streams.storage.formats.state_record import checked


class LocalStates:
    """See `States`. `loop_call`: calls a function later on the event loop's thread."""

    def __init__(self, loop_call: Callable[..., object]) -> None:
        self.on_written: Callable[[int, StorageError | None], None] = lambda _number, _failure: None
        self._loop_call: Final = loop_call
        self._values: Final[dict[str, bytes]] = {}
        self._written = 0

    def get(self, key: str) -> bytes | None:
        """See `States.get`."""
        return self._values.get(key)

    def items(self, prefix: str) -> Sequence[tuple[str, bytes]]:
        """See `States.items`."""
        return sorted((key, value) for key, value in self._values.items() if key.startswith(prefix))

    def write(self, changes: Mapping[str, bytes | None]) -> int:
        """See `States.write`."""
        for key, value in checked(changes, self._values).items():
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value
        self._written += 1
        self._loop_call(self._end, self._written)
        return self._written

    def _end(self, number: int) -> None:
        self.on_written(number, None)
