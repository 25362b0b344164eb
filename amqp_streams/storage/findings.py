"""What a look at a data directory found: values for logs, for `verify`, for tests. Pure."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Whether somebody has to care."""

    NOTE = "note"
    """As expected after a crash; nothing accepted is lost."""
    WARNING = "warning"
    """Something was missing or foreign, and could be made good without loss."""
    DAMAGE = "damage"
    """Accepted records are lost or unreadable, or may be."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found. `file` is relative to the data directory; `position` is in bytes, where that makes sense."""

    severity: Severity
    file: str
    position: int | None
    words: str

    def __str__(self) -> str:
        place = self.file if self.position is None else f"{self.file} at byte {self.position}"
        return f"{self.severity}: {place}: {self.words}"
