"""Bytes -> choices: what makes structured inputs of the bytes that a fuzzer mutates.

Law: the same bytes give the same choices, and when they end every further choice is the first one, so an
input that is cut stays an input.
"""

from collections.abc import Sequence
from typing import TypeVar

_Option = TypeVar("_Option")


class Draw:
    """Choices from `data`, front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self.handles: list[int] = []
        """Those that the conversation that is being made has attached."""

    @property
    def left(self) -> int:
        """Bytes that were not used."""
        return max(0, len(self._data) - self._at)

    def byte(self) -> int:
        """0 to 255."""
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def below(self, count: int) -> int:
        """0 to `count` - 1; two bytes are used if one has too few values."""
        return self.number(1 if count <= 256 else 2) % count

    def number(self, width: int) -> int:
        """An unsigned integer of `width` bytes."""
        return int.from_bytes(bytes(self.byte() for _ in range(width)))

    def chance(self, of: int) -> bool:
        """True once in `of` times."""
        return self.byte() % of == of - 1

    def pick(self, options: Sequence[_Option]) -> _Option:
        """One of them."""
        return options[self.below(len(options))]

    def raw(self, most: int) -> bytes:
        """Up to `most` bytes as they are."""
        size = self.below(most + 1)
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken

    def text(self, most: int) -> str:
        """Up to `most` characters, of several scripts now and then."""
        return self.raw(most).decode("latin-1" if self.chance(4) else "utf-8", "ignore")

    def rest(self) -> bytes:
        """All that is left."""
        taken = self._data[self._at :]
        self._at = len(self._data)
        return taken
