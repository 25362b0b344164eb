"""`make reference`: write the pages of docs/reference/ that are generated from the code."""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from amqp_streams.cli import settings as node
from amqp_streams.cli.commands.serve import serve as node_serve
from knative_gateway.cli import settings as gateway
from knative_gateway.cli.commands.serve import serve as gateway_serve
from service_parts.settings.reference import Contents, Kind, Section, Setting, Shape
from service_parts.settings.showing import written
from service_parts.settings.sources import Name, flag_of
from tools import commands

FOLDER: Final = Path(__file__).parent.parent / "docs" / "reference"
COMMAND: Final = "make reference"
WIDTH_MAX: Final = 110

_VALUES: Final[Mapping[Kind, str]] = {
    Kind.ADDRESS: "`HOST:PORT`",
    Kind.DURATION: "duration",
    Kind.NUMBER: "whole number",
    Kind.PATH: "path",
    Kind.SECONDS: "seconds",
    Kind.SIZE: "size",
    Kind.SWITCH: "`true` or `false`",
    Kind.TEXT: "text",
}
_SHAPES: Final[Mapping[Shape, str]] = {
    Shape.ONE: "{}",
    Shape.LIST: "list of: {}",
    Shape.ONE_OR_LIST: "{}, or a list",
    Shape.NAMED: "table of: {}",
    Shape.NAMED_LISTS: "table of lists of: {}",
}


@dataclass(frozen=True, slots=True)
class Program:
    """A program whose settings have a page. `settable` are those with a variable."""

    page: str
    command: str
    guide: str
    units: str
    contents: Contents
    serve: click.Command
    settable: frozenset[Name]
    variable_of: Callable[[Name], str]


PROGRAMS: Final = (
    Program(
        "node-configuration.md",
        "amqp-streams serve",
        "[Operations](../operations.md) explains the settings in use: start and stop, access, quotas,"
        " certificates.",
        "A duration is written `500ms`, `30s`, `30m`, `12h`, `7d` or `1h30m`; a size `1000000`, `64KiB`,"
        " `512MiB` or `10GB`.",
        node.file_contents(),
        node_serve,
        frozenset(node.settable()),
        node.variable_of,
    ),
    Program(
        "gateway-configuration.md",
        "knative-gateway serve",
        "[Settings of the gateway](../gateway.md) shows an example, and [Knative](../knative.md) explains"
        " what the gateway does.",
        "Durations are numbers of seconds. A size is written `1000000`, `64KiB`, `512MiB` or `10GB`.",
        gateway.file_contents(),
        gateway_serve,
        frozenset(gateway.settable()),
        gateway.variable_of,
    ),
)


def main() -> None:
    """Write every page again."""
    FOLDER.mkdir(exist_ok=True)
    for program in PROGRAMS:
        (FOLDER / program.page).write_text(page(program), encoding="utf-8")
    for name in commands.PROGRAMS:
        (FOLDER / commands.page_of(name)).write_text(commands.page(name), encoding="utf-8")


def page(program: Program) -> str:
    """The whole page, with a new line at its end."""
    lines = [
        f"# Configuration of `{program.command}`",
        "",
        f"<!-- Written by `{COMMAND}` from the code: change the descriptions there, not here. -->",
        "",
        *wrapped(f"This page lists every setting by section. {program.guide}"),
        "",
        *wrapped(
            "- The program takes a setting from the first of these that has it: the flag, the environment"
            " variable, the file of `--config`, the default."
        ),
        *wrapped("- In a variable, commas or spaces separate the entries of a list."),
        *wrapped("- A relative path in the file starts at the folder of the file."),
        *wrapped(f"- {program.units}"),
        *wrapped(
            f"- `{program.command} --check` checks all settings and the files that they name, and starts"
            " nothing."
        ),
        *wrapped(
            f"- `{program.command} --schema` prints the JSON schema of the file. An editor can use the schema"
            " to check and complete the file."
        ),
        "",
        "## Sections",
        "",
        "- [Top of the file](#top-of-the-file)",
        *(f"- [`{heading(section)}`](#{anchor(heading(section))})" for section in program.contents.sections),
        "",
        "## Top of the file",
        "",
        *table(program, (), program.contents.settings),
    ]
    for section in program.contents.sections:
        rows = table(program, (section.name,), section.settings)
        lines += ["", f"## `{heading(section)}`", "", *meaning(section), "", *rows]
    return "\n".join(lines) + "\n"


def wrapped(text: str) -> list[str]:
    """The lines of a paragraph or of a list item."""
    return textwrap.wrap(
        text,
        WIDTH_MAX,
        subsequent_indent="  " if text.startswith("- ") else "",
        break_long_words=False,
        break_on_hyphens=False,
    )


def meaning(section: Section) -> list[str]:
    """The description of a section; its lines are paragraphs or list items."""
    return [line for text in section.meaning.splitlines() for line in wrapped(text) or [""]]


def heading(section: Section) -> str:
    """The section as the file has it: `[limits]`, `[logs.NAME]`, `[[access]]`."""
    return section.form.format(section.name)


def anchor(text: str) -> str:
    """The fragment of a heading's link: letters, digits, hyphens and underscores stay."""
    kept = [character for character in text.lower() if character.isalnum() or character in " -_"]
    return "".join(kept).replace(" ", "-")


def table(program: Program, above: Name, settings: Iterable[Setting]) -> Iterator[str]:
    """A row for each setting."""
    yield "| setting | flag, variable | value | default | bounds | meaning |"
    yield "|---|---|---|---|---|---|"
    for setting in settings:
        yield "| " + " | ".join(row(program, above, setting)) + " |"


def row(program: Program, above: Name, setting: Setting) -> list[str]:
    """The cells of one setting."""
    name = (*above, setting.name)
    flags = {option for parameter in program.serve.params for option in parameter.opts}
    given = [f"`{flag_of(name)}`"] if flag_of(name) in flags else []
    given += [f"`{program.variable_of(name)}`"] if name in program.settable else []
    return [
        f"`{setting.name}`",
        "<br>".join(given) or "file only",
        value(setting),
        "required" if setting.required else shown(setting, setting.default),
        bounds(setting),
        setting.meaning.replace("|", "\\|"),
    ]


def value(setting: Setting) -> str:
    """What one writes, in words."""
    one = (
        ", ".join(f"`{choice}`" for choice in setting.choices)
        if setting.kind is Kind.CHOICE
        else _VALUES[setting.kind]
    )
    return _SHAPES[setting.shape].format(one)


def shown(setting: Setting, found: object) -> str:
    """A default or a bound as people write it; empty if it is None."""
    if found is None:
        return ""
    if isinstance(found, list):
        return ", ".join(f"`{one}`" for one in found)
    if isinstance(found, bool):
        return f"`{str(found).lower()}`"
    value = written(setting, found)
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def bounds(setting: Setting) -> str:
    """The smallest and the largest value, or the lengths of a text or a list."""
    low, high = shown(setting, setting.minimum), shown(setting, setting.maximum)
    counted = "characters" if setting.shape is Shape.ONE else "entries"
    if setting.shortest == 1 and setting.longest is None:
        return "not empty"
    if setting.shortest is not None and setting.longest is not None:
        return f"{setting.shortest:,} to {setting.longest:,} {counted}"
    if setting.above is not None:
        return f"more than `{setting.above}`, at most {high}"
    if low and high:
        return f"{low} to {high}"
    return f"at least {low}" if low else ""


if __name__ == "__main__":
    main()
