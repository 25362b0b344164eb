"""[io] A program with a table of commands, and their exit statuses.

Law: **stdout has data, stderr has messages**. Exit status: 0 done, 1 failed, 2 usage error, 130 interrupted.
With `--json` (or `--format json`, `-o json`), every error is one line on stderr, an object of JSON.
A reader that closes stdout early (`| head`) does not cause a failure. A command whose extra is not installed
is a usage error.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from itertools import pairwise, takewhile
from typing import Any, Final, NoReturn

import click
from click.shell_completion import CompletionItem

from service_parts.errors import SettingError
from service_parts.extras import MissingExtraError, needs_extra

DONE: Final = 0
FAILED: Final = 1
USAGE_ERROR: Final = 2
INTERRUPTED: Final = 130

_FORMAT_OPTIONS: Final = frozenset({"--format", "--output", "-o"})
_JSON_WORDS: Final = frozenset({"--json", "-ojson", *(f"{name}=json" for name in _FORMAT_OPTIONS)})

CONTEXT: Final[Mapping[str, Any]] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
"""Settings of click that every program has."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: its function (`module:name`), its summary, and the extra that it needs, if any."""

    where: str
    summary: str
    extra: str | None = None


@dataclass(frozen=True, slots=True)
class Faults:
    """The errors of a product.

    `complain` writes an error to stderr, as a line of JSON if its argument is True. With JSON, it also gets
    the usage errors that click detects.
    """

    failures: tuple[type[Exception], ...]
    usage_errors: tuple[type[Exception], ...]
    complain: Callable[[Exception, bool], object]


class Program(click.Group):
    """The commands of `table`.

    A command is imported when it is used, so that help and completion are fast.
    """

    def __init__(self, *arguments: Any, table: Mapping[str, Entry], faults: Faults, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.table: Final = table
        self._faults: Final = faults
        self._usage_errors: Final[tuple[type[Exception], ...]] = (
            MissingExtraError,
            SettingError,
            *faults.usage_errors,
        )
        self._failures: Final[tuple[type[Exception], ...]] = (
            MissingExtraError,
            SettingError,
            OSError,
            *faults.failures,
        )

    # Click's signature, here and below.
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The commands in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        module, _, name = entry.where.partition(":")
        with self._extra_of(cmd_name):
            command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest name for a command that does not exist."""
        # An option that is unknown gets click's own message.
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = get_close_matches(args[0], self.table, n=1)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self.table.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command without importing the commands."""
        named = [
            CompletionItem(name, help=entry.summary)
            for name, entry in self.table.items()
            if name.startswith(incomplete)
        ]
        # Not `click.Group`: it would import every command to complete one name.
        return named + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> NoReturn:
        """Run the command, and end the process with its exit status.

        Without `--json`, the usage errors that click detects are left to click.
        """
        _open_standard_descriptors()
        words = (*ctx._protected_args, *ctx.args)
        try:
            with self._extra_of(words[0] if words else ""):
                status = super().invoke(ctx)
            # Here and not at exit, where an error would only be printed.
            sys.stdout.flush()
        except BrokenPipeError:
            _abandon_stdout()
            # The reader has what it wanted, as `head` does.
            status = DONE
        except self._failures as error:
            self._faults.complain(_of_stdout(error), wants_json(words))
            status = USAGE_ERROR if isinstance(error, self._usage_errors) else FAILED
        except click.ClickException as error:
            if not wants_json(words):
                raise
            self._faults.complain(error, True)
            status = error.exit_code
        except (KeyboardInterrupt, click.Abort):
            status = INTERRUPTED
        ctx.exit(status if isinstance(status, int) else DONE)

    def main(self, *arguments: Any, **more: Any) -> Any:
        """Run the program. Help and versions, too, end with a message if they cannot be written."""
        try:
            return super().main(*arguments, **more)
        except OSError as error:
            self._faults.complain(_of_stdout(error), wants_json(sys.argv[1:]))
            sys.exit(FAILED)

    def _extra_of(self, command: str) -> Any:
        extra = self.table[command].extra if command in self.table else None
        return nullcontext() if extra is None else needs_extra(command, extra)


def wants_json(words: Sequence[str]) -> bool:
    """Whether the words of a command line ask for JSON, so that errors are JSON, too."""
    # Not by click: the error may be that click cannot parse the words.
    options = tuple(takewhile(lambda word: word != "--", words))
    return not _JSON_WORDS.isdisjoint(options) or any(
        name in _FORMAT_OPTIONS and value == "json" for name, value in pairwise(options)
    )


def _open_standard_descriptors() -> None:
    """Open the standard descriptors that the parent closed (`>&-`).

    Otherwise a socket or file that is opened later gets the number of stdout, and output is written into it.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            # The system gives the lowest free number, so the descriptors are opened in their order.
            nowhere = os.open(os.devnull, os.O_RDWR)
            assert nowhere == descriptor, "the lowest free descriptor is the one that was closed"
            setattr(sys, name, os.fdopen(nowhere, mode))


def _of_stdout(error: Exception) -> Exception:
    """Return the error with the name of stdout, if it is one of writing to stdout; its text has no file."""
    if isinstance(error, OSError) and error.filename is None:
        try:
            sys.stdout.flush()
        except OSError as again:
            _abandon_stdout()
            return OSError(again.errno, again.strerror, "stdout")
    return error


def _abandon_stdout() -> None:
    """Discard buffered output, because its reader has closed stdout, or its disk is full.

    The interpreter's flush at exit would fail.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    # The interpreter keeps its file object, and flushes it into nothing.
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
