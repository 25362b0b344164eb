"""The states of a node whose logs are in Kafka: in memory, until the process ends. Pure.

Nothing that needs states which outlive the node is offered on Kafka, so nothing is lost with them.
"""

from collections.abc import Callable, Mapping
from typing import Final

from amqp_streams.errors import StorageError
from amqp_streams.storage.formats.state_values import StateValues


class LocalStates(StateValues):
    """See `States`. `loop_call`: calls a function later on the event loop's thread."""

    def __init__(self, loop_call: Callable[..., object]) -> None:
        super().__init__()
        self.on_written: Callable[[int, StorageError | None], None] = lambda _number, _failure: None
        self._loop_call: Final = loop_call
        self._written = 0

    def write(self, changes: Mapping[str, bytes | None]) -> int:
        """See `States.write`."""
        self.change(changes)
        self._written += 1
        self._loop_call(self._end, self._written)
        return self._written

    def _end(self, number: int) -> None:
        self.on_written(number, None)
