"""How large documents may be: counted before anything walks through them. Pure.

Law: counting ends within its bounds, however often the same value stands in a document. What was counted can
be recursed into.
"""

from collections.abc import Mapping
from typing import Final, NoReturn

DEPTH_MAX: Final = 100
"""Objects and lists within each other."""
VALUES_MAX: Final = 200_000
"""Of one document: its scalars, objects and lists."""
OBJECT_VALUES_MAX: Final = 20_000
"""Of one object: all of them are walked through at every write."""
CHARACTERS_MAX: Final = 4 << 20
"""Of all texts and names in one document."""
OBJECT_BYTES_MAX: Final = 1_500_000
"""Of one object as it is stored: about what Kubernetes takes."""


class TooMuchError(ValueError):
    """A document that is larger than is taken; says in which way."""


class Budget:
    """What may still come."""

    def __init__(self, values: int = VALUES_MAX, characters: int = CHARACTERS_MAX) -> None:
        self._most: Final = (values, characters)
        self._values, self._characters = self._most

    def spend(self, value: object) -> None:
        """Count a value and all in it.

        Raises:
            TooMuchError: it is more than is left, or nested too deep.
        """
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
