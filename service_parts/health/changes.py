"""What users and operators changed recently: who, when, what. The latest CHANGES_MAX changes, in memory.

The log of the service has all of them; this ring is for people who ask the service.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

CHANGES_MAX: Final = 200
"""How many changes are kept, each with texts of at most 128 characters."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `at_ms`: when, since 1970. `user`: None: anonymous.

    `what`: the operation; `type` and `name`: of what; `details`: more about it.
    """

    at_ms: int
    user: str | None
    what: str
    type: str
    name: str
    details: Mapping[str, str] = field(default_factory=dict)


class Changes:
    """The latest changes. `now_ms`: the time since 1970."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms: Final = now_ms
        self._kept: Final[deque[Change]] = deque(maxlen=CHANGES_MAX)

    def add(
        self,
        user: str | None,
        what: str,
        type_: str,
        name: str = "",
        details: Mapping[str, str] | None = None,
    ) -> None:
        """Note a change."""
        self._kept.append(Change(self._now_ms(), user, what, type_, name, details or {}))

    def latest(self) -> list[Change]:
        """The kept changes, newest first."""
        return list(reversed(self._kept))
