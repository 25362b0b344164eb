"""What is fuzzed: a name, a function that takes bytes, and how long one input may take."""

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

    `seconds_max`: processor time, or for targets with processes of their own time, that an input may take;
    one that takes longer is run twice before that counts. `guided`: made of Python, so that coverage says
    something. `words`: what mutations put in. `share`: of the time that all targets get.
    """

    name: str
    run: Callable[[bytes], Hashable]
    seconds_max: float
    guided: bool = True
    words: tuple[bytes, ...] = ()
    share: float = 1.0
    close: Callable[[], None] | None = None

    def seeds(self) -> list[bytes]:
        """The corpus in the repository, in the order of its names."""
        folder = CORPUS / self.name
        return [path.read_bytes() for path in sorted(folder.iterdir())] if folder.is_dir() else []
