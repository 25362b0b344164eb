"""What was worked out before, good as long as everything that it was made from is the very same.

Law: with a memo and without one the results are equal; all inputs are immutable, so identity is enough. It keeps a pass over thousands of
objects short, which shares its loop with the events.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from knative_gateway.addressing import Lookup
from knative_gateway.ports import Key
from knative_gateway.resources.objects import Object

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Entry:
    inputs: Sequence[object]
    looked_up: Sequence[tuple[Key, Object | None]]
    result: object


class Memo:
    """Results by what they are and of which object. `forget_unused` once in each pass, else it grows."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, Key], _Entry] = {}
        self._used: dict[tuple[str, Key], _Entry] = {}

    def of(self, what: str, key: Key, inputs: Sequence[object], lookup: Lookup, make: Callable[[Lookup], T]) -> T:
        """The result of `make`, which depends on `inputs` and on what it looks up, and on nothing else."""
        name = (what, key)
        entry = self._used.get(name) or self._entries.get(name)
        if entry is None or not _is_good(entry, inputs, lookup):
            looked_up: list[tuple[Key, Object | None]] = []

            def recorded(wanted: Key) -> Object | None:
                found = lookup(wanted)
                looked_up.append((wanted, found))
                return found

            entry = _Entry(inputs, looked_up, make(recorded))
        self._used[name] = entry
        return cast(T, entry.result)

    def forget_unused(self) -> None:
        """What was not asked for since the last time goes."""
        self._entries, self._used = self._used, {}

    def __len__(self) -> int:
        return len(self._entries)


def _is_good(entry: _Entry, inputs: Sequence[object], lookup: Lookup) -> bool:
    if len(entry.inputs) != len(inputs):
        return False
    for old, new in zip(entry.inputs, inputs, strict=True):
        if old is not new and not (isinstance(new, str) and old == new):
            return False
    return all(lookup(key) is found for key, found in entry.looked_up)


def nothing(_key: Key) -> Object | None:
    """For what looks nothing up."""
    return None
