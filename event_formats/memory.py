"""A bounded cache of results for keys that repeat.

Law: a memory changes the cost of a result and never the result. Its size is bounded, because untrusted peers
choose the keys.

A memory belongs to the module or object that fills it and lives as long as the process, because names of
attributes, media types and types of events repeat across connections, logs and tasks. Two threads may use it
without a lock: a race exceeds the bound by at most one entry.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memory(dict[K, V]):
    """Results by key: at most `entries_max`, and only for keys of at most `length_max`.

    A full memory is emptied. This costs less for each look-up than to record which entry was used last.
    """

    __slots__ = ("_length_of", "entries_max", "length_max")

    def __init__(self, entries_max: int, length_max: int, length_of: Callable[[Any], int] = len) -> None:
        super().__init__()
        self.entries_max: Final = entries_max
        self.length_max: Final = length_max
        self._length_of: Final = length_of

    def keep(self, key: K, value: V) -> V:
        """Keep the value, unless the key is too long. Returns the value."""
        if self._length_of(key) <= self.length_max:
            # Before the entry is added, so that the bound holds.
            if len(self) >= self.entries_max:
                self.clear()
            self[key] = value
        return value
