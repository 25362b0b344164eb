"""Why a filter cannot be used, and how much of one is taken. Spec: FILTEX 2.2 (definitional errors), 7.1 (complexity)."""

from dataclasses import dataclass


class FilterError(Exception):
    """A filter is malformed, ill-typed or beyond a limit. `position` counts from 1: a character of a text, an entry of a map or list.

    Inside this package only: `compile_filters` makes a `PeerError` of it that names the filter.
    """

    def __init__(self, reason: str, position: int | None = None) -> None:
        self.reason = reason
        self.position = position
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one source may ask for, so that no filter costs more than a bounded time for each record.

    `filters`: in all, those within groups included. `characters`, `tokens`: of one text. `depth`: of groups within groups, of
    parentheses, NOT, signs and functions within each other. `entries`: of one map or list of a property filter, its inner ones included.
    """

    filters: int = 32
    characters: int = 4096
    tokens: int = 512
    depth: int = 32
    entries: int = 64
