"""The fuzzer that is always there: mutates what it has, keeps what shows something new.

No coverage, but the same inputs for a seed.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from random import Random
from typing import Final

from fuzz.target import INPUT_BYTES_MAX

_FRESH_BYTES_MAX: Final = 512
_KEPT_MAX: Final = 4000
_MUTATIONS_MAX: Final = 6
_FRESH_ONCE_IN: Final = 8
_GROWN_ONCE_IN: Final = 32


class Mutator:
    """Inputs for one target, from its seeds on."""

    def __init__(self, seed: int, seeds: Sequence[bytes], words: Sequence[bytes]) -> None:
        self._random = Random(seed)
        self._seeds = list(seeds)
        self._words = list(words)
        self.kept: list[bytes] = []
        self._known: set[Hashable] = set()

    def inputs(self) -> Iterator[bytes]:
        """Each seed as it is, then mutations without end."""
        yield from list(self._seeds)
        while True:
            sources = self.kept or self._seeds
            if not sources or self._random.randrange(_FRESH_ONCE_IN) == 0:
                yield self._random.randbytes(self._random.randrange(1, _FRESH_BYTES_MAX))
            else:
                yield self.mutated(self._random.choice(sources))

    def recall(self, inputs: Sequence[bytes]) -> None:
        """Mutate these inputs too: an earlier run kept them."""
        self.kept += self._random.sample(inputs, min(len(inputs), _KEPT_MAX))

    def showed(self, data: bytes, what: Hashable) -> bool:
        """Keep the input if what it showed is new."""
        if what in self._known:
            return False
        self._known.add(what)
        if len(self.kept) >= _KEPT_MAX:
            self.kept[self._random.randrange(_KEPT_MAX)] = data
        else:
            self.kept.append(data)
        return True

    def mutated(self, data: bytes) -> bytes:
        """`data` with a few changes."""
        changed = bytearray(data)
        for _ in range(self._random.randrange(1, _MUTATIONS_MAX)):
            self._random.choice(_MUTATIONS)(self, changed)
        if self._random.randrange(_GROWN_ONCE_IN) == 0:
            self._grow(changed)
        return bytes(changed[:INPUT_BYTES_MAX])

    def _place(self, data: bytearray) -> int:
        return self._random.randrange(len(data) + 1)

    def _flip(self, data: bytearray) -> None:
        if data:
            data[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)

    def _set(self, data: bytearray) -> None:
        if data:
            data[self._random.randrange(len(data))] = self._random.choice(
                (0, 1, 0x40, 0x7F, 0x80, 0xFF, self._random.randrange(256))
            )

    def _insert(self, data: bytearray) -> None:
        at = self._place(data)
        data[at:at] = self._random.randbytes(self._random.randrange(1, 9))

    def _delete(self, data: bytearray) -> None:
        at = self._place(data)
        del data[at : at + self._random.randrange(1, 17)]

    def _repeat(self, data: bytearray) -> None:
        at, size = self._place(data), self._random.randrange(1, 65)
        data[at:at] = data[at : at + size] * self._random.randrange(1, 4)

    def _word(self, data: bytearray) -> None:
        if self._words:
            at = self._place(data)
            word = self._random.choice(self._words)
            data[at : at + len(word) * self._random.randrange(2)] = word

    def _splice(self, data: bytearray) -> None:
        other = self._random.choice(self.kept or self._seeds or [b""])
        data[self._place(data) :] = other[self._random.randrange(len(other) + 1) :]

    def _cut(self, data: bytearray) -> None:
        del data[self._place(data) :]

    def _grow(self, data: bytearray) -> None:
        """A part many times: what grows faster than its input shows here."""
        at = self._place(data)
        part = bytes(data[at : at + self._random.randrange(1, 33)])
        if part:
            size = 1 << self._random.randrange(6, INPUT_BYTES_MAX.bit_length())
            data[at:at] = part * (size // len(part))

    def _count(self, data: bytearray) -> None:
        """A length, perhaps, one off."""
        if data:
            at = self._random.randrange(len(data))
            data[at] = (data[at] + self._random.choice((-1, 1))) % 256


_MUTATIONS: Final[tuple[Callable[[Mutator, bytearray], None], ...]] = (
    Mutator._flip,
    Mutator._set,
    Mutator._insert,
    Mutator._delete,
    Mutator._repeat,
    Mutator._word,
    Mutator._word,
    Mutator._splice,
    Mutator._cut,
    Mutator._count,
)
