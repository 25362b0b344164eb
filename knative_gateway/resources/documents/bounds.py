"""Limits on the size of documents, checked before any other code walks through a document. Pure.

Counting stops at the limit, even if aliases repeat the same value many times. Code may recurse into a
document that was counted, because its depth is limited.
"""

from collections.abc import Mapping
from typing import Final, NoReturn

DEPTH_MAX: Final = 100
"""Levels of nested objects and lists."""
VALUES_MAX: Final = 200_000
"""Values of one document: scalars, objects and lists."""
OBJECT_VALUES_MAX: Final = 20_000
"""Values of one object. The limit is lower than VALUES_MAX because every write walks through all of them."""
CHARACTERS_MAX: Final = 4 << 20
"""Characters of all texts and names in one document."""
OBJECT_BYTES_MAX: Final = 1_500_000
"""Bytes of one stored object. Kubernetes has about the same limit."""


class TooMuchError(ValueError):
    """A document exceeds a limit. The message names the limit."""


class Budget:
    """Counts values and characters against their limits."""

    def __init__(self, values: int = VALUES_MAX, characters: int = CHARACTERS_MAX) -> None:
        self._most: Final = (values, characters)
        self._values, self._characters = self._most

    def spend(self, value: object) -> None:
        """Count a value and everything in it.

        Raises:
          TooMuchError: the budget is used up, or the value is nested too deep.
        """
        # Level by level and without recursion: the depth of the document is not limited yet.
        level, depth = [value], 0
        while level:
            if depth > DEPTH_MAX:
                message = f"it is nested more than {DEPTH_MAX} deep"
                raise TooMuchError(message)
            below: list[object] = []
            for each in level:
                self._one(each)
                if isinstance(each, Mapping):
                    for name in each:
                        self._characters -= len(name)
                    below += each.values()
                elif isinstance(each, list | tuple):
                    below += each
                # Checked for each container: aliases could make one level larger than memory.
                if len(below) > self._values:
                    self._end()
            level, depth = below, depth + 1

    def _one(self, value: object) -> None:
        self._values -= 1
        if isinstance(value, str):
            self._characters -= len(value)
        if self._values < 0 or self._characters < 0:
            self._end()

    def _end(self) -> NoReturn:
        values, characters = self._most
        message = (
            f"it has more than {characters} characters"
            if self._characters < 0
            else f"it has more than {values} values"
        )
        raise TooMuchError(message)
