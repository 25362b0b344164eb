"""[io] The context of a command.

Law: **options of the command, then one source: a context or the variables, never a mixture**. So the password
of one node is never sent to another.

The first of these decides: `--context`; the option with the URL: no context; the variable `…_CONTEXT`; the
variable `…_URL`: no context; `context use`; no context.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from service_parts.command_line.contexts.settings import Kind, Settings
from service_parts.command_line.contexts.stored import load, path_of
from service_parts.errors import SettingError


@dataclass(frozen=True, slots=True)
class Choice:
    """The context of a command, and what chose it: `--context`, a variable, or `context use`."""

    name: str
    settings: Settings
    source: str


def chosen(
    kind: Kind, environment: Mapping[str, str], *, named: str | None, address_given: bool
) -> Choice | None:
    """Return the context of a command; None if it uses none.

    `named`: the value of `--context`. `address_given`: the command line has the option with the URL.

    Raises:
        click.UsageError: the command line has both.
        SettingError: the context does not exist, or the file of contexts cannot be read.
    """
    if named and address_given:
        message = f"--context and --{kind.address} are alternatives: give one"
        raise click.UsageError(message)
    if address_given:
        return None
    name, source = named, "--context"
    if not name:
        name, source = environment.get(kind.variable), kind.variable
    if not name and environment.get(kind.address_variable):
        return None
    contexts = load(kind, path_of(environment))
    if not name:
        name, source = contexts.current, "'context use'"
    return None if not name else Choice(name, contexts.get(name), source)


def completed(kind: Kind) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return the function that completes the name of a context in a shell."""

    def names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            named = load(kind, path_of(os.environ)).named
        # The shell shows whatever is printed, so that an error would look like a name.
        except SettingError:
            return []
        return [
            CompletionItem(name, help=str(settings.get(kind.address, "")))
            for name, settings in named.items()
            if name.startswith(incomplete)
        ]

    return names


def given(context: click.Context, name: str) -> bool:
    """Whether the command line has the option of the parameter `name`, after or before the command."""
    root = context.find_root()
    return any(
        each.get_parameter_source(name) is ParameterSource.COMMANDLINE
        for each in dict.fromkeys((context, root))
    )


def merged(
    context: click.Context, choice: Choice | None, values: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the values of the connection's parameters: of the command line, else of the context if there is
    one, else of variables and defaults, as click has read them into `values`.
    """
    if choice is None:
        return dict(values)
    return {
        name: value if given(context, name) else choice.settings.get(name, defaults.get(name))
        for name, value in values.items()
    }
