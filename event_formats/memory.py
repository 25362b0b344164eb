"""Results for keys that repeat, kept for the next time.

Law: a memory changes the cost of a result, never the result; and it has a bound, although untrusted peers choose
the keys.

Memories belong to the module or object that fills them, and live as long as the process: names of attributes,
media types and types of events repeat across connections, logs and tasks. A race of two threads costs at most
one entry.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memory(dict[K, V]):
    """Results by key: at most `entries_max` of them, and none for a key longer than `length_max`. If it is
    full, it is emptied.
    """

    __slots__ = ("_length_of", "entries_max", "length_max")

    def __init__(self, entries_max: int, length_max: int, length_of: Callable[[Any], int] = len) -> None:
        super().__init__()
        self.entries_max: Final = entries_max
        self.length_max: Final = length_max
        self._length_of: Final = length_of

    def keep(self, key: K, value: V) -> V:
        """Keep the value if the key is not too long; the value."""
        if self._length_of(key) <= self.length_max:
            if len(self) >= self.entries_max:
                self.clear()
            self[key] = value
        return value
