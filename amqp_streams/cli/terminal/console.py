"""Output for people: tables on stdout, messages and progress on stderr. Programs use `--json`."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

import click

from service_parts.command_line.program import FAILED
from service_parts.command_line.wording import json_line, printable_json
from service_parts.texts import printable

_WIDTH: Final = 100_000


def say(words: str) -> None:
    """Print a message for people on stderr."""
    click.echo(words, err=True)


def confirmed(question: str) -> bool:
    """Ask on stderr; True if stdin answers yes, False at its end."""
    click.echo(f"{question} [y/N] ", nl=False, err=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def report(words: str, *, as_json: bool, **values: object) -> None:
    """Report that a change was made: a message for people on stderr, or `values` as JSON on stdout."""
    if as_json:
        print_json(values)
    else:
        say(words)


def declined(words: str, *, as_json: bool) -> int:
    """Report that the user did not confirm a change, in the form of an error. Returns the exit status."""
    say(json_line(words, None) if as_json else words)
    return FAILED


def print_json(value: object) -> None:
    """One document of JSON on stdout."""
    click.echo(printable_json(value, indent=2, ascii_only=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table on stdout, numbers to the right. Never cut or folded: the terminal breaks long lines."""
    from rich.console import Console  # noqa: PLC0415  # here and below: rich takes its time to load, most commands print no table
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    # Wider than any table: rich would fold cells at the width of the terminal, and 80 in a pipe.
    console = Console(highlight=False, width=_WIDTH)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[index], int | float | None) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell(one)) for one in row))
    with console.capture() as captured:
        console.print(table)
    # Spaces at line ends are useless.
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def cell(value: object) -> str:
    """A value as a table cell."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def human_bytes(count: float) -> str:
    """A size as people say it: `10.0 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def stored_size(size: int, events: int) -> str:
    """The size of stored events; `-` if the node does not know it: Kafka does not say it."""
    return "-" if events and not size else human_bytes(size)


def human_duration(ms: int) -> str:
    """A duration in the notation of the settings: `7d`, `1h30m`, `500ms`."""
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0"


class Advance(Protocol):
    """Updates a progress bar."""

    def __call__(self, done: float, *, note: str = "") -> None:
        """`done` of the total given at the start; `note` is shown next to the bar."""


@contextmanager
def progress(what: str, total: float | None) -> Iterator[Advance]:
    """A progress bar on stderr while the block runs, only if stderr is a terminal. `total` None: unknown."""
    if not sys.stderr.isatty():
        yield _nothing
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns: list[ProgressColumn | str] = [
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    ]
    if total is not None:
        columns += [TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=5) as bar:
        task = bar.add_task(what, total=total, note="")

        def advance(done: float, *, note: str = "") -> None:
            bar.update(task, completed=done, note=note)

        yield advance


def _nothing(done: float, *, note: str = "") -> None:
    """Used if stderr is not a terminal."""
