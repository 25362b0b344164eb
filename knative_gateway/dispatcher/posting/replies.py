"""[io] A limit on the bytes of answers that are received at once, with a share for each subscriber.

The bytes of all admitted answers are at most `max`, unless a single answer is larger. Another answer of a
subscriber is admitted only while more bytes are free than its admitted answers use. An admitted answer has
its full size reserved, so it can always end.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

BYTES_MAX: Final = 64 << 20


class Entry:
    """An answer that is admitted or waits. `go` is called when a waiting answer is admitted."""

    __slots__ = ("go", "is_in", "owner", "size")

    def __init__(self, owner: str, size: int, go: Callable[[], None]) -> None:
        self.owner: Final = owner
        self.size: Final = size
        self.go: Final = go
        self.is_in = False


class Replies:
    """`max`: bytes that may be reserved. `used`: bytes that are reserved by admitted answers."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.max: Final = bytes_max
        self.used = 0
        self._used_by: Final[Counter[str]] = Counter()
        self._waiting: Final[dict[str, dict[Entry, None]]] = {}

    @property
    def waiting(self) -> int:
        """How many answers wait."""
        return sum(map(len, list(self._waiting.values())))  # a copy: `/metrics` is built in another thread

    def enter(self, entry: Entry) -> bool:
        """Admit an answer. False: it waits until `go` is called, or until it leaves."""
        # A later answer of an owner does not overtake one that waits: a large answer would otherwise wait
        # without end behind small ones.
        if entry.owner not in self._waiting and self._may_enter(entry):
            self._admit(entry)
        else:
            self._waiting.setdefault(entry.owner, {})[entry] = None
        return entry.is_in

    def leave(self, entry: Entry) -> None:
        """Remove an answer that has ended, whether it was admitted or not."""
        if entry.is_in:
            entry.is_in = False
            self.used -= entry.size
            self._used_by[entry.owner] -= entry.size
            if not self._used_by[entry.owner]:
                del self._used_by[entry.owner]
        else:
            self._remove(entry)
        if self._waiting:
            self._admit_others()

    def _may_enter(self, entry: Entry) -> bool:
        # An answer that is larger than `max` is received alone.
        return not self.used or self._used_by[entry.owner] + entry.size <= self.max - self.used

    def _admit(self, entry: Entry) -> None:
        entry.is_in = True
        self.used += entry.size
        self._used_by[entry.owner] += entry.size

    def _admit_others(self) -> None:
        """Admit waiting answers that fit now, one of each owner in each round."""
        for owner in list(self._waiting):
            entry = next(iter(self._waiting[owner]))
            if self._may_enter(entry):
                self._remove(entry)
                if owner in self._waiting:
                    self._waiting[owner] = self._waiting.pop(owner)
                self._admit(entry)
                entry.go()

    def _remove(self, entry: Entry) -> None:
        entries = self._waiting.get(entry.owner, {})
        entries.pop(entry, None)
        if not entries:
            self._waiting.pop(entry.owner, None)
