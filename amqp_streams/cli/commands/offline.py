"""`amqp-streams verify` and `dump`: read a data directory without a node, and change nothing in it."""

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click

from amqp_streams.cli.terminal.console import human_bytes, print_json, progress, say
from amqp_streams.cli.terminal.parameters import NAME, now_ms, usage_error
from amqp_streams.cli.terminal.rendering import Format, Shown, iso_time, render
from amqp_streams.cli.terminal.starts import AtOffset, AtTime, parse_bound
from amqp_streams.client import ReceivedEvent
from amqp_streams.errors import CorruptionError, WireError
from amqp_streams.storage import inspect
from service_parts.command_line.wording import printable_json

_FAILED: Final = 1
_FLUSH_BYTES: Final = 64 << 10
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
_FORCE = click.option(
    "--force", is_flag=True, help="Read even if a node has it open; records being written may look torn."
)


@click.command(short_help="Check a data directory without a node.")
@click.argument("directory", type=_DIRECTORY)
@_FORCE
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def verify(directory: Path, *, force: bool, as_json: bool) -> int:
    """Check checksums, order and indexes in the data directory DIRECTORY. Exits with 1 if there is damage.

    A 'note' is normal after a crash. The next start repairs a 'warning'. 'damage' means that accepted events
    are lost or unreadable.

    \b
    Examples:
      amqp-streams verify data
      amqp-streams verify data --json | jq '.findings[]'
    """
    counts = inspect.Verified()
    with progress("checking", 1.0) as advance:

        def checked(done: int, total: int) -> None:
            advance(done / total if total else 1.0, note=human_bytes(done))

        findings = list(inspect.verify(directory, force=force, progress=checked, counts=counts))
    if as_json:
        print_json(
            {"ok": not counts.damages}
            | asdict(counts)
            | {"findings": [asdict(finding) for finding in findings]}
        )
    else:
        for finding in findings:
            click.echo(str(finding))
        verdict = f"{counts.damages} cases of damage" if counts.damages else "no damage"
        click.echo(
            f"{verdict}; {counts.warnings} warnings, {counts.notes} notes; {counts.logs} logs,"
            f" {counts.partitions} partitions, {counts.segments} segments, {counts.records:,} records,"
            f" {human_bytes(counts.bytes)}, {counts.states:,} states, {counts.producers:,} producers"
        )
    return _FAILED if counts.damages else 0


@click.command(short_help="Show the stored records of a log without a node.")
@click.argument("directory", type=_DIRECTORY)
@click.argument("log", type=NAME, required=False)
@click.option("--states", is_flag=True, help="Show cursors and epochs instead of records; no log is needed.")
@click.option(
    "--producers",
    is_flag=True,
    help="Show the idempotent producers of the log and their sequences instead of records.",
)
@click.option("--partition", type=click.IntRange(min=0), help="Only this partition.  [default: all in turn]")
@click.option(
    "--from",
    "start",
    metavar="OFFSET|TIME",
    help="The first record: an offset or a time.  [default: the earliest]",
)
@click.option(
    "--max", "records_max", type=click.IntRange(min=1), metavar="N", help="Stop after this many records."
)
@_FORCE
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a JSON line for each record, as 'receive --format json' does.",
)
def dump(
    directory: Path,
    log: str | None,
    *,
    states: bool,
    producers: bool,
    partition: int | None,
    start: str | None,
    records_max: int | None,
    force: bool,
    as_json: bool,
) -> int:
    """Show the records of LOG in the data directory DIRECTORY, one line each.

    Unreadable records are reported on stderr and skipped; the exit status is then 1.

    \b
    Examples:
      amqp-streams dump data temps --max 10
      amqp-streams dump data temps --partition 0 --from 42 --json | jq .body
      amqp-streams dump data temps --from 2026-11-21T06:30
      amqp-streams dump data temps --producers
      amqp-streams dump data --states
    """
    if states == (log is not None):
        message = "give the name of a log, or use --states"
        raise click.UsageError(message)
    if log is None:
        return _dump_states(directory, force=force, as_json=as_json)
    if producers:
        return _dump_producers(directory, log, partition, force=force, as_json=as_json)
    first, after_ms = 0, None
    if start is not None and start != "earliest":
        try:
            bound = parse_bound(start, now_ms())
        except ValueError as error:
            raise usage_error("--from", error) from error
        match bound:
            case AtOffset(number):
                first = number
            case AtTime(ms):
                # The condition of the store is exclusive.
                after_ms = ms - 1
    walk = Walk(directory, log, after_ms=after_ms, left=records_max, force=force)
    form = Format.JSON if as_json else Format.TEXT
    lines = bytearray()
    for record in walk.records(first, partition):
        lines += render(shown(record), form)
        # A write for each record would cost more than the record.
        if len(lines) >= _FLUSH_BYTES:
            sys.stdout.buffer.write(lines)
            lines.clear()
    sys.stdout.buffer.write(lines)
    return _FAILED if walk.damaged else 0


def _dump_states(directory: Path, *, force: bool, as_json: bool) -> int:
    for key, value in inspect.dump_states(directory, force=force).items():
        if as_json:
            click.echo(
                printable_json(
                    {"key": key, "value": value.decode(errors="replace"), "hex": value.hex()},
                    ascii_only=False,
                )
            )
        else:
            shown_value = printable_json(value.decode()) if _is_text(value) else value.hex()
            click.echo(f"{printable_json(key)}  {shown_value}")
    return 0


def _dump_producers(directory: Path, log: str, partition: int | None, *, force: bool, as_json: bool) -> int:
    try:
        for index, table in inspect.dump_producers(directory, log, partition=partition, force=force):
            for producer, (sequence, at_ms) in table.items():
                if as_json:
                    entry = {"partition": index, "producer": producer, "sequence": sequence, "at_ms": at_ms}
                    click.echo(printable_json(entry, ascii_only=False))
                else:
                    click.echo(f"{index}  {printable_json(producer)}  {sequence}  {iso_time(at_ms)}")
    except KeyError as error:
        raise unknown(directory, log, partition if error.args[0] == partition else None) from error
    return 0


@dataclass(slots=True)
class Walk:
    """Iterates over the records of a log, and continues after unreadable ones."""

    directory: Path
    log: str
    after_ms: int | None = None
    left: int | None = None
    force: bool = False
    damaged: bool = False

    def records(self, start: int, partition: int | None) -> Iterator[inspect.DumpedRecord]:
        """Records from number `start` on, of one partition or of all in turn.

        Damage is reported and skipped.
        """
        index = 0 if partition is None else partition
        while self.left != 0:
            try:
                yield from self._partition(start, index)
            except KeyError as error:
                # The end of the log: without a given partition, all are read until one does not exist.
                if partition is None and index > 0 and error.args[0] == index:
                    return
                raise unknown(self.directory, self.log, index if error.args[0] == index else None) from error
            if partition is not None:
                return
            index += 1

    def _partition(self, start: int, index: int) -> Iterator[inspect.DumpedRecord]:
        at: int | None = start
        while at is not None:
            found = inspect.dump(
                self.directory,
                self.log,
                partition=index,
                start=at,
                after_ms=self.after_ms,
                count=self.left,
                force=self.force,
            )
            at = None
            try:
                for record in found:
                    self.left = None if self.left is None else self.left - 1
                    yield record
            except CorruptionError as error:
                say(f"amqp-streams: {error}")
                self.damaged = True
                # The next readable record; None: no later record of the partition is readable.
                at = error.after


def unknown(directory: Path, log: str, partition: int | None) -> click.UsageError:
    """The error for a log, or a partition of it, that does not exist."""
    what = f"no log named {log!r}" if partition is None else f"no partition {partition} of log {log!r}"
    return click.UsageError(
        f"{what} in {directory}; its logs are {', '.join(inspect.log_names(directory)) or 'none'}"
    )


def shown(record: inspect.DumpedRecord) -> Shown:
    """A record to print; a message that cannot be decoded is shown as a whole."""
    event = ReceivedEvent(record.message)
    position = (str(record.partition), record.number, record.timestamp_ms)
    try:
        return Shown(
            *position,
            message_format=record.message_format,
            key=event.key,
            subject=event.subject,
            content_type=event.content_type,
            properties=event.properties,
            annotations=event.annotations,
            body=event.body,
        )
    except WireError:
        return Shown(*position, body=record.message, message_format=record.message_format)


def _is_text(value: bytes) -> bool:
    try:
        return value.decode().isprintable()
    except UnicodeDecodeError:
        # Binary values are shown as hexadecimal digits.
        return False
