"""What the commands of backups share: their options, and a progress bar in bytes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from amqp_streams.cli.terminal.console import human_bytes, progress
from amqp_streams.cli.terminal.parameters import Read
from amqp_streams.storage.backups.pace import Pace
from service_parts.settings.units import byte_count

FAILED: Final = 1
_RATE_MIN: Final = 64 << 10


def _rate(text: str) -> int:
    if text == "unlimited":
        return 0
    count = byte_count(text)
    if count < _RATE_MIN:
        message = "must be at least 64KiB (a second), or 'unlimited'"
        raise ValueError(message)
    return count


def rate_option(default: str) -> Callable[[Any], Any]:
    return click.option(
        "--rate",
        type=Read("size", _rate),
        default=default,
        show_default=True,
        metavar="SIZE",
        help="The most bytes to copy or check in a second, or 'unlimited'.",
    )


FOLDER: Final = click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
EXISTING: Final = click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
AS_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def pace_of(rate: int) -> Pace:
    return Pace(rate or None)


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    with progress(what, 1.0) as advance:

        def moved(done: int, total: int) -> None:
            advance(done / total if total else 1.0, note=human_bytes(done))

        yield moved
