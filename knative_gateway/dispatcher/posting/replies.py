"""[io] How many bytes of answers may be received at once: a bound for all connections, with a share for each subscriber.

Laws: the bytes of all answers that were let in are at most `max`, or one answer; a subscriber may have another one received only while
more room is free than its answers use. One that was let in has room for all of its bytes, so that it can end whatever the others do.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

BYTES_MAX: Final = 64 << 20


class Entry:
    """An answer that is being received, or waits. `go` is called once it is let in, unless that was at once."""

    __slots__ = ("go", "is_in", "owner", "size")

    def __init__(self, owner: str, size: int, go: Callable[[], None]) -> None:
        self.owner: Final = owner
        self.size: Final = size
        self.go: Final = go
        self.is_in = False


class Replies:
    """`max`: bytes that there is room for; `used`: those of answers that were let in."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.max: Final = bytes_max
        self.used = 0
        self._used_by: Final[Counter[str]] = Counter()
        self._waiting: Final[dict[str, dict[Entry, None]]] = {}

    @property
    def waiting(self) -> int:
        """Answers that wait."""
        return sum(map(len, list(self._waiting.values())))  # a copy: another thread may ask

    def enter(self, entry: Entry) -> bool:
        """Let an answer in; False: it waits until `go` is called, or it leaves."""
        if entry.owner not in self._waiting and self._may_enter(entry):
            self._let_in(entry)
        else:
            self._waiting.setdefault(entry.owner, {})[entry] = None
        return entry.is_in

    def leave(self, entry: Entry) -> None:
        """It has ended, whether it was let in or not."""
        if entry.is_in:
            entry.is_in = False
            self.used -= entry.size
            self._used_by[entry.owner] -= entry.size
            if not self._used_by[entry.owner]:
                del self._used_by[entry.owner]
        else:
            self._remove(entry)
        if self._waiting:
            self._let_others_in()

    def _may_enter(self, entry: Entry) -> bool:
        return not self.used or self._used_by[entry.owner] + entry.size <= self.max - self.used

    def _let_in(self, entry: Entry) -> None:
        entry.is_in = True
        self.used += entry.size
        self._used_by[entry.owner] += entry.size

    def _let_others_in(self) -> None:
        """Those that now have room, one of each owner: owners take turns."""
        for owner in list(self._waiting):
            entry = next(iter(self._waiting[owner]))
            if self._may_enter(entry):
                self._remove(entry)
                if owner in self._waiting:
                    self._waiting[owner] = self._waiting.pop(owner)
                self._let_in(entry)
                entry.go()

    def _remove(self, entry: Entry) -> None:
        entries = self._waiting.get(entry.owner, {})
        entries.pop(entry, None)
        if not entries:
            self._waiting.pop(entry.owner, None)
