"""Inputs that runs of the mutator keep, so that the next run begins where the last one ended.

Law: an input is stored under what it showed, so no later run stores another input that shows the same.
"""

import hashlib
from collections.abc import Hashable
from pathlib import Path
from typing import Final

_DIGITS: Final = 40
"""As in the names that libFuzzer gives to its files in the same folder."""


class Kept:
    """The inputs in one folder; `names` has one name for each behaviour that an input showed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder: Final = folder
        self.names: Final = {path.name for path in folder.iterdir()}

    def inputs(self) -> list[bytes]:
        """The stored inputs, in the order of their names."""
        return [(self._folder / name).read_bytes() for name in sorted(self.names)]

    def keep(self, data: bytes, shown: Hashable) -> bool:
        """Store the input, unless an input that showed the same is stored."""
        name = hashlib.sha256(repr(shown).encode()).hexdigest()[:_DIGITS]
        if name in self.names:
            return False
        self.names.add(name)
        (self._folder / name).write_bytes(data)
        return True
