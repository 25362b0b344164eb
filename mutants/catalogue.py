"""The mutants: each a fault that was fixed, as an exact text and the text that puts the fault back.

Law: `old` stands exactly once in its file, so a patch that no longer fits the code fails a test instead of
testing nothing.

The files of `catalogue/` are TOML. One mutant is:

    [[mutant]]
    name = "a-drain-without-credit"           # unique, in words
    fault = "A drain with credit 0 was never answered."
    [[mutant.change]]                         # one or more
    file = "amqp_streams/server/links/control.py"
    old = '''...'''
    new = '''...'''
    [mutant.found_by]                         # suite = what the suite is run with
    sim = "20"
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
FOLDER: Final = Path(__file__).parent / "catalogue"


class CatalogueError(Exception):
    """A file of the catalogue is wrong."""


class StaleError(CatalogueError):
    """A change no longer fits the code."""


@dataclass(frozen=True, slots=True)
class Change:
    """One replacement in one file."""

    file: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """`text` with the fault in it.

        Raises:
            StaleError: `old` does not stand exactly once in `text`, or changes nothing.
        """
        found = text.count(self.old)
        if found != 1:
            raise StaleError(f"{self.file}: the old text stands {found} times instead of once:\n{self.old}")
        if self.old == self.new:
            raise StaleError(f"{self.file}: the new text is the old text:\n{self.old}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault that was fixed once.

    `found_by` maps the name of a suite to what the suite is run with: a number of seeds, a target, a test.
    """

    name: str
    fault: str
    changes: Sequence[Change]
    found_by: Mapping[str, str]


def read(folder: Path = FOLDER) -> list[Mutant]:
    """All mutants, in the order of the files' names.

    Raises:
        CatalogueError: a file is not valid, or two mutants have one name.
    """
    mutants = [one for path in sorted(folder.glob("*.toml")) for one in _mutants(path)]
    names = [one.name for one in mutants]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CatalogueError(f"mutants with one name: {', '.join(twice)}")
    return mutants


def apply(mutant: Mutant, root: Path) -> None:
    """Put the fault into the checkout at `root`.

    Raises:
        StaleError: a change does not fit the code.
    """
    for change in mutant.changes:
        path = root / change.file
        if not path.is_file():
            raise StaleError(f"{change.file} does not exist")
        path.write_text(change.applied(path.read_text(encoding="utf-8")), encoding="utf-8")


def _mutants(path: Path) -> Iterator[Mutant]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        for table in tables["mutant"]:
            yield _mutant(table)
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise CatalogueError(f"{path.name} is not a valid catalogue: {error!r}") from error


def _mutant(table: Mapping[str, Any]) -> Mutant:
    changes = [Change(str(one["file"]), str(one["old"]), str(one["new"])) for one in table["change"]]
    found_by = {str(suite): str(value) for suite, value in table["found_by"].items()}
    if not changes or not found_by:
        raise CatalogueError(f"{table['name']}: a mutant needs a change and a suite that finds it")
    return Mutant(str(table["name"]), str(table["fault"]), changes, found_by)
