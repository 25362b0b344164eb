"""What is fuzzed: a name, a function that takes bytes, and what one input may cost."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).parent / "corpus"
"""Inputs that once were interesting, a folder a target."""
INPUT_BYTES_MAX: Final = 64 << 10


class WrongError(Exception):
    """The code under test broke a promise that is not an exception of its own: a finding like any other."""


@dataclass(frozen=True, slots=True)
class Target:
    """`run` takes an input and raises if that is a finding; it returns what the input showed, and inputs that
    show something new are kept.

    `seconds_max`, `seconds_per_kib`: processor time that an input may take, on the machine of
    `fuzz.budget.REFERENCE_S`. `bytes_max`, `bytes_per_byte`: memory of Python objects that it may have at
    once. `guided`: made of Python, so that coverage says something. `words`: what mutations put in. `share`:
    of the time that all targets get.
    """

    name: str
    run: Callable[[bytes], Hashable]
    seconds_max: float
    seconds_per_kib: float = 0.02
    bytes_max: int = 8 << 20
    bytes_per_byte: int = 1024
    guided: bool = True
    words: tuple[bytes, ...] = ()
    share: float = 1.0
    close: Callable[[], None] | None = None

    def seconds_for(self, size: int) -> float:
        """What an input of `size` bytes may take."""
        return self.seconds_max + self.seconds_per_kib * size / 1024

    def bytes_for(self, size: int) -> int:
        """What an input of `size` bytes may have in memory."""
        return self.bytes_max + self.bytes_per_byte * size

    def seeds(self) -> list[bytes]:
        """The corpus in the repository, in the order of its names."""
        folder = CORPUS / self.name
        return [path.read_bytes() for path in sorted(folder.iterdir())] if folder.is_dir() else []
