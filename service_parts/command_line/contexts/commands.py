"""[io] The commands `context add`, `use`, `list`, `show` and `remove`, for any program with contexts."""

import os
import shlex
from pathlib import Path
from typing import Any

import click

from service_parts.command_line.contexts.choosing import chosen, completed
from service_parts.command_line.contexts.settings import Form, Kind, Setting, Settings, without_password
from service_parts.command_line.contexts.stored import Contexts, load, path_of, save
from service_parts.command_line.wording import printable_json, table_lines
from service_parts.errors import SettingError

_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def context_commands(kind: Kind, example: str, local: str) -> click.Group:
    """Return the commands `context …` of a program.

    `example`: the options of an example of `context add`. `local`: the URL of another example.
    """
    program = kind.program
    group = click.Group(
        "context",
        short_help="Store connections under names, and choose one.",
        help=(
            "Store the options of a connection under a name, and choose one. A context has no secrets, only"
            " the names of files and commands that have them.\n\n\b\nExamples:\n"
            f"  {program} context add prod {example}\n"
            f"  {program} context use prod\n"
            f"  {program} context show"
        ),
    )
    for command in (_add(kind, example, local), _use(kind), _list(kind), _show(kind), _remove(kind)):
        group.add_command(command)
    return group


def _add(kind: Kind, example: str, local: str) -> click.Command:
    @click.command("add", short_help="Store a connection under a name.", help=_help(
        "Store a connection under the name NAME.",
        f"{kind.program} context add prod {example}",
        f"{kind.program} context add dev --{kind.address} {local} --use --replace",
    ))  # fmt: skip
    @click.argument("name")
    @click.option("--use", is_flag=True, help="Use it from now on, as 'context use' does.")
    @click.option("--replace", is_flag=True, help="Replace a context with this name.")
    @_AS_JSON
    def add(name: str, *, use: bool, replace: bool, as_json: bool, **given: Any) -> None:
        contexts = _loaded(kind)
        if name in contexts.named and not replace:
            message = f"a context named {name!r} exists: replace it with --replace"
            raise SettingError(message)
        contexts.named[name] = _settings(kind, given)
        if use:
            contexts.current = name
        save(kind, contexts)
        _report(f"{name} was stored in {contexts.path}", as_json=as_json, added=name, file=str(contexts.path))

    for setting in reversed(kind.settings):
        click.option(
            setting.flag,
            setting.name,
            required=setting.name == kind.address,
            is_flag=setting.form is Form.SWITCH,
            metavar=None if setting.form is Form.SWITCH else setting.metavar,
            help=setting.help,
        )(add)
    return add


def _use(kind: Kind) -> click.Command:
    @click.command("use", short_help="Choose the context of later commands.", help=_help(
        "Use the context NAME in later commands that name neither a context nor a URL.",
        f"{kind.program} context use prod", f"{kind.program} context use --none",
    ))  # fmt: skip
    @click.argument("name", required=False, shell_complete=completed(kind))
    @click.option("--none", is_flag=True, help="Use no context.")
    @_AS_JSON
    def use(name: str | None, *, none: bool, as_json: bool) -> None:
        if (name is None) != none:
            message = "give NAME or --none"
            raise click.UsageError(message)
        contexts = _loaded(kind)
        if name is not None:
            contexts.get(name)
        contexts.current = name
        save(kind, contexts)
        _report("no context is used" if name is None else f"{name} is used", as_json=as_json, current=name)

    return use


def _list(kind: Kind) -> click.Command:
    @click.command("list", short_help="List the contexts.", help=_help(
        "List the contexts. The one that 'context use' chose has a star.", f"{kind.program} context list",
    ))  # fmt: skip
    @_AS_JSON
    def list_(*, as_json: bool) -> None:
        contexts = _loaded(kind)
        if as_json:
            click.echo(printable_json({"contexts": contexts.named, "current": contexts.current}, indent=2))
            return
        rows = [
            ("*" if name == contexts.current else "", name, str(settings.get(kind.address, "-")))
            for name, settings in contexts.named.items()
        ]
        click.echo("\n".join(table_lines(("", "NAME", kind.address.upper()), rows)))

    return list_


def _show(kind: Kind) -> click.Command:
    @click.command("show", short_help="Show the settings of a context.", help=_help(
        "Show the settings of the context NAME; without NAME, of the context that commands use now, and why."
        " Secrets are not shown.",
        f"{kind.program} context show", f"{kind.program} context show prod --json",
    ))  # fmt: skip
    @click.argument("name", required=False, shell_complete=completed(kind))
    @_AS_JSON
    def show(name: str | None, *, as_json: bool) -> None:
        choice = chosen(kind, os.environ, named=name, address_given=False)
        if choice is None:
            _report("no context is used", as_json=as_json, name=None)
            return
        if as_json:
            found = {"name": choice.name, "source": choice.source, "settings": choice.settings}
            click.echo(printable_json(found, indent=2))
            return
        why = "" if name else f" (chosen by {choice.source})"
        click.echo(f"{choice.name}{why}")
        for setting, value in choice.settings.items():
            click.echo(f"  {setting}: {'yes' if value is True else value}")

    return show


def _remove(kind: Kind) -> click.Command:
    @click.command("remove", short_help="Remove a context.", help=_help(
        "Remove the context NAME. Files that it names stay.", f"{kind.program} context remove prod",
    ))  # fmt: skip
    @click.argument("name", shell_complete=completed(kind))
    @_AS_JSON
    def remove(name: str, *, as_json: bool) -> None:
        contexts = _loaded(kind)
        contexts.get(name)
        del contexts.named[name]
        if contexts.current == name:
            contexts.current = None
        save(kind, contexts)
        _report(f"{name} was removed", as_json=as_json, removed=name)

    return remove


def _help(words: str, *examples: str) -> str:
    return f"{words}\n\n\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples)


def _loaded(kind: Kind) -> Contexts:
    return load(kind, path_of(os.environ))


def _settings(kind: Kind, given: dict[str, Any]) -> Settings:
    """Return the settings to store.

    Raises:
        SettingError: a value is not valid.
    """
    settings: Settings = {}
    for setting in kind.settings:
        value = given[setting.name]
        if value is None or value is False:
            continue
        settings[setting.name] = _checked(kind, setting, value)
    for name in ("password", "token"):
        if f"{name}_file" in settings and f"{name}_command" in settings:
            message = f"--{name}-file and --{name}-command are alternatives: give one"
            raise click.UsageError(message)
    return settings


def _checked(kind: Kind, setting: Setting, value: str | bool) -> str | bool:
    if setting.form is Form.PATH:
        path = Path(str(value)).expanduser().absolute()
        if not path.is_file():
            message = f"{setting.flag}: {path} does not exist, or is not a file"
            raise SettingError(message)
        return str(path)
    if setting.form is Form.COMMAND:
        try:
            words = shlex.split(str(value))
        except ValueError as error:
            message = f"{setting.flag}: {value!r} is not a valid command: {error}"
            raise SettingError(message) from error
        if not words:
            message = f"{setting.flag}: the command is empty"
            raise SettingError(message)
    if setting.name == kind.address:
        return without_password(str(value))
    return value


def _report(words: str, *, as_json: bool, **values: object) -> None:
    if as_json:
        click.echo(printable_json(values, indent=2))
    else:
        click.echo(words, err=True)
