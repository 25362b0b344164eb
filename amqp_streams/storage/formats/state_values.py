"""The values of states in memory, which every store has. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from amqp_streams.storage.formats.state_record import Changes, checked


class StateValues:
    """Values by key: the part of `ports.States` that does not depend on where they become durable."""

    def __init__(self, values: Mapping[str, bytes] | None = None) -> None:
        self.values: Final[dict[str, bytes]] = dict(values or {})

    def get(self, key: str) -> bytes | None:
        """See `States.get`."""
        return self.values.get(key)

    def items(self, prefix: str) -> Sequence[tuple[str, bytes]]:
        """See `States.items`."""
        return sorted([(key, value) for key, value in self.values.items() if key.startswith(prefix)])

    def change(self, changes: Changes) -> None:
        """Set values, and remove the keys whose value is None.

        Raises:
            ValueError: a bound is exceeded, and nothing is changed.
        """
        for key, value in checked(changes, self.values).items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value
