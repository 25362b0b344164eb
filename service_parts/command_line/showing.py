"""[io] The command `config show`: the settings in force, and where each comes from."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from service_parts.command_line.serving import given_flags
from service_parts.command_line.wording import printable_json, table_lines
from service_parts.settings.reference import Contents
from service_parts.settings.showing import DEFAULT, in_force
from service_parts.settings.sources import Given, Name

_NOT_SETTINGS = frozenset({"check", "schema", "ready_file", "ready_fd"})
Read = Callable[[Mapping[Name, object], Mapping[str, str], Path | None], Mapping[Name, Given]]


def config_commands(
    program: str, serve: click.Command, read: Read, contents: Callable[[], Contents]
) -> click.Group:
    """Return the commands `config …` of a program. `serve`: the command whose settings are shown.

    `read`: returns what flags, variables and a file give, and raises the program's error if a value is not
    valid.
    """
    group = click.Group(
        "config",
        short_help="Show settings and their sources.",
        help=f"Show the settings of '{program} serve'.\n\n\b\nExamples:\n  {program} config show",
    )

    @click.command("show", short_help="Show the settings in force, and where each comes from.", help=(
        f"Show the settings that '{program} serve' would have with the same flags, variables and file, and"
        " where each comes from. Values that are not valid are reported. Nothing is started."
        "\n\n\b\nExamples:\n"
        f"  {program} config show --given\n"
        f"  {program} config show --config settings.toml --json | jq .settings"
    ))  # fmt: skip
    @click.option("--given", "only_given", is_flag=True, help="Leave out settings that have their default.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    def show(*, config: Path | None, only_given: bool, as_json: bool, **flags: Any) -> None:
        rows = in_force(contents(), read(given_flags(flags), os.environ, config))
        rows = [one for one in rows if not only_given or one.source != DEFAULT]
        if as_json:
            found = {one.name: {"value": one.value, "source": one.source} for one in rows}
            click.echo(printable_json({"settings": found}, indent=2, default=str))
            return
        cells = [(one.name, _cell(one.value), one.source) for one in rows]
        click.echo("\n".join(table_lines(("SETTING", "VALUE", "FROM"), cells)))

    show.params = [
        *(one for one in serve.params if one.name not in _NOT_SETTINGS and "--help" not in one.opts),
        *show.params,
    ]
    group.add_command(show)
    return group


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value)) or "-"
    if isinstance(value, Mapping):
        return printable_json(value, default=str)
    return str(value)
