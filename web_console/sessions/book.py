"""The sessions of a console, by their tokens. Pure: tokens and times are arguments.

Laws: there are at most `most` sessions, and at most `most_of_one` of one address. A session ends when it was
not used for `idle_s`, and `life_s` after its login in any case.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

_S = TypeVar("_S")
_FRESH_S: Final = 60.0
"""A new login ends a session that was not used for so long, if the console is full."""


class FullError(Exception):
    """There are as many sessions as may be, and all are in use."""


@dataclass(slots=True)
class _Entry(Generic[_S]):
    session: _S
    address: str
    begun_s: float
    used_s: float


class Book(Generic[_S]):
    """Sessions by token."""

    def __init__(self, *, most: int, most_of_one: int, idle_s: float, life_s: float) -> None:
        self._most: Final = most
        self._most_of_one: Final = most_of_one
        self._idle_s: Final = idle_s
        self._life_s: Final = life_s
        self._entries: Final[dict[str, _Entry[_S]]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[_S]:
        return (entry.session for entry in list(self._entries.values()))

    def add(self, token: str, session: _S, *, address: str, now_s: float) -> _S | None:
        """Add a session, and return the one that ended for it, if any.

        Raises:
            FullError: no session may end for it. Nothing has changed.
        """
        assert token not in self._entries
        ours = [token for token, entry in self._entries.items() if entry.address == address]
        full = ours if len(ours) >= self._most_of_one else list(self._entries)
        ended = None
        # If the address has its share, one of its own sessions ends, which makes room for all as well.
        if full is ours or len(full) >= self._most:
            oldest = min(full, key=lambda each: self._entries[each].used_s)
            if now_s - self._entries[oldest].used_s < _FRESH_S:
                raise FullError
            ended = self._entries.pop(oldest).session
        self._entries[token] = _Entry(session, address, now_s, now_s)
        return ended

    def use(self, token: str, now_s: float) -> _S | None:
        """Return the session with this token, which is used now; None if no session has it."""
        entry = self._entries.get(token)
        if entry is None or self._is_over(entry, now_s):
            return None
        entry.used_s = now_s
        return entry.session

    def remove(self, token: str) -> _S | None:
        """Remove a session and return it."""
        entry = self._entries.pop(token, None)
        return None if entry is None else entry.session

    def expired(self, now_s: float) -> list[_S]:
        """Remove the sessions that are over, and return them."""
        over = [token for token, entry in self._entries.items() if self._is_over(entry, now_s)]
        return [self._entries.pop(token).session for token in over]

    def _is_over(self, entry: _Entry[_S], now_s: float) -> bool:
        return now_s - entry.used_s > self._idle_s or now_s - entry.begun_s > self._life_s
