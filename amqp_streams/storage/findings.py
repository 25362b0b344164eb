"""What opening or verifying a data directory found: values for the log, for `verify` and for tests. Pure."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How serious a finding is."""

    NOTE = "note"
    """Expected after a crash; no accepted record is lost."""
    WARNING = "warning"
    """A file was missing or unknown; nothing is lost."""
    DAMAGE = "damage"
    """Accepted records are lost or unreadable, or may be."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `file` is relative to the data directory; `position` is in bytes, if it applies."""

    severity: Severity
    file: str
    position: int | None
    words: str

    def __str__(self) -> str:
        where = self.file if self.position is None else f"{self.file} at byte {self.position}"
        return f"{self.severity}: {where}: {self.words}"
