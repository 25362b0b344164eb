"""The transcripts as files: `4.1.txt` has the scenarios of section 4.1.

    # 4.1 Binding producer links

    == 1 A producer asks for a partition.

    node temps:4
    attach p producer temps partition=1
    ----
    p attached, partition 1

A scenario begins with `==`, the number of its paragraph (or several) and a sentence. A step is a command,
`----`, and its results up to an empty line, if it has any. docs/scenarios.md lists the commands.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
RULE: Final = "----"


@dataclass(frozen=True, slots=True)
class Step:
    """One command, its words and options, and its expected results."""

    line: str
    verb: str
    words: tuple[str, ...]
    options: dict[str, str]
    expected: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario of a paragraph."""

    section: str
    paragraphs: str
    title: str
    steps: tuple[Step, ...] = field(repr=False)

    @property
    def name(self) -> str:
        """The name in the output of tests."""
        return f"{self.section} ¶{self.paragraphs}"


@dataclass(frozen=True, slots=True)
class Section:
    """One file of scenarios."""

    path: Path
    number: str
    title: str
    scenarios: tuple[Scenario, ...]


def sections() -> list[Section]:
    """All files, in the order of the specification."""
    paths = sorted(HERE.glob("*.txt"), key=lambda path: [int(part) for part in path.stem.split(".")])
    return [read(path) for path in paths]


def read(path: Path) -> Section:
    """Read one file."""
    lines = path.read_text().splitlines()
    number, _, title = lines[0].removeprefix("# ").partition(" ")
    starts = [at for at, line in enumerate(lines) if line.startswith("== ")]
    scenarios = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        paragraphs, _, words = lines[start].removeprefix("== ").partition(" ")
        scenarios.append(Scenario(number, paragraphs, words, tuple(_steps(lines[start + 1 : end]))))
    return Section(path, number, title, tuple(scenarios))


def _steps(lines: list[str]) -> Iterator[Step]:
    pending = [*lines, ""]
    while pending:
        line = pending.pop(0)
        if not line or line.startswith("#"):
            continue
        expected: list[str] = []
        if pending[0] == RULE:
            pending.pop(0)
            while pending[0]:
                expected.append(pending.pop(0))
        verb, *words = shlex.split(line)
        options = {
            name: value for name, _, value in (word.partition("=") for word in words if _is_option(word))
        }
        yield Step(
            line, verb, tuple(word for word in words if not _is_option(word)), options, tuple(expected)
        )


_FLAGS: Final = ("durable", "presettled", "code")


def _is_option(word: str) -> bool:
    return word in _FLAGS or (
        "=" in word and word.split("=", 1)[0].replace("-", "").replace(".", "").isalpha()
    )


def written(section: Section, told: list[list[list[str]]]) -> str:
    """Return the file again, with the actual results of each step of each scenario."""
    lines = [f"# {section.number} {section.title}", ""]
    for scenario, outcomes in zip(section.scenarios, told, strict=True):
        lines += [f"== {scenario.paragraphs} {scenario.title}", ""]
        for step, outcome in zip(scenario.steps, outcomes, strict=True):
            lines += [step.line, *([RULE, *outcome] if outcome else []), ""]
    return "\n".join(lines)
