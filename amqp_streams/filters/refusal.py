"""Errors and limits of filters. Spec: FILTEX 2.2 (definitional errors), 7.1 (complexity)."""

from dataclasses import dataclass


class FilterError(Exception):
    """A filter is malformed, has a wrong type or exceeds a limit.

    `position`: of the character or entry with the error, from 1. Used only in this package:
    `compile_filters` turns it into a `PeerError` with the filter's name.
    """

    def __init__(self, reason: str, position: int | None = None) -> None:
        self.reason = reason
        self.position = position
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one source, so that each filter has a bounded cost for each record.

    `filters`: includes those in groups. `characters`, `tokens`: of one text. `depth`: nesting of groups,
    parentheses, NOT, signs and functions. `entries`: of one map or list of a property filter, inner ones
    included.
    """

    filters: int = 32
    characters: int = 4096
    tokens: int = 512
    depth: int = 32
    entries: int = 64
