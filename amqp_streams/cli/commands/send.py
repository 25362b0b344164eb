"""`amqp-streams send`: sends lines, JSON lines, CSV rows or files as events."""

import asyncio
import mimetypes
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

import click

from amqp_streams.cli.completion import log_names
from amqp_streams.cli.connection import Endpoint, NodeCommand, client_options, opened, run
from amqp_streams.cli.terminal.console import Advance, human_bytes, print_json, progress, say
from amqp_streams.cli.terminal.drafts import Common, CsvDrafter, Draft, Drafter, JsonDrafter, LineDrafter
from amqp_streams.cli.terminal.parameters import PROPERTY
from amqp_streams.cli.terminal.reading import InputError, Lines, chunks, descriptor_of
from amqp_streams.client import Producer, SendError
from amqp_streams.errors import AmqpStreamsError
from amqp_streams.wire.batched.compression import CODECS, codec
from service_parts.extras import MissingExtraError

_FAILED: Final = 1
_LINES, _JSON_LINES, _FILE, _CSV = "lines", "json-lines", "file", "csv"


@dataclass(frozen=True, slots=True)
class Reading:
    """How the input is turned into events."""

    mode: str
    common: Common
    csv_as_json: bool = True
    key_column: str | None = None
    key_template: str | None = None
    property_columns: tuple[str, ...] = ()

    def drafter(self) -> Drafter:
        """A drafter for one file: each CSV file has its own columns."""
        if self.mode == _CSV:
            return CsvDrafter(
                self.common,
                as_json=self.csv_as_json,
                key_column=self.key_column,
                key_template=self.key_template,
                property_columns=self.property_columns,
            )
        return JsonDrafter(self.common) if self.mode == _JSON_LINES else LineDrafter(self.common)


@dataclass(slots=True)
class Tally:
    """The counts so far."""

    sent: int = 0
    bytes: int = 0
    refused: int = 0
    keyless: int = 0
    first_refusal: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Sending:
    """How the events are sent."""

    partition: str | None
    window: int
    compression: str | None
    wait_s: float


def _installed(_context: click.Context, _parameter: click.Parameter, compression: str | None) -> str | None:
    if compression is not None:
        try:
            codec(compression)
        except MissingExtraError as error:
            raise click.UsageError(str(error)) from None
    return compression


@click.command(cls=NodeCommand, short_help="Send events from stdin or files.")
@click.argument("address", shell_complete=log_names)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--lines", "mode", flag_value=_LINES, default=_LINES, help="Each line is an event (the default)."
)
@click.option(
    "--json-lines",
    "mode",
    flag_value=_JSON_LINES,
    help='Each line describes an event: {"body": …, "key": …, "properties": {…}}.',
)
@click.option(
    "--csv",
    "mode",
    flag_value=_CSV,
    help="Each row of a CSV file with a header is an event, as a JSON object.",
)
@click.option("--file", "mode", flag_value=_FILE, help="Each file is an event.")
@click.option(
    "--csv-body",
    type=click.Choice(["json", "line"]),
    default="json",
    show_default=True,
    help="With --csv: the form of the body.",
)
@click.option("--key", help="The key of all events. Events with one key keep their order, in one partition.")
@click.option(
    "--key-regex", metavar="REGEX", help="The key is the first group of this regular expression in the line."
)
@click.option("--key-column", metavar="NAME", help="With --csv: the key is this column.")
@click.option(
    "--key-template",
    metavar="TEMPLATE",
    help="With --csv: the key as a template of columns, e.g. '{date:.10}' or '{site}-{sensor}'.",
)
@click.option(
    "--property-column",
    "property_columns",
    multiple=True,
    metavar="NAME",
    help=(
        "With --csv: this column is also an application property, a number if it looks like one; may be"
        " repeated. '*': all columns."
    ),
)
@click.option("--partition", help="Send all events to this partition.")
@click.option(
    "--property",
    "properties",
    type=PROPERTY,
    multiple=True,
    metavar="NAME=VALUE",
    help="An application property; may be repeated.",
)
@click.option("--subject", help="The subject of all events.")
@click.option(
    "--content-type",
    help="The content type of all events.  [default: application/json for JSON, by name for --file]",
)
@click.option(
    "--window", type=click.IntRange(1, 1_000_000), default=1000, show_default=True, help="Events in flight."
)
@click.option(
    "--compression",
    type=click.Choice(CODECS),
    callback=_installed,
    help="Compress the batches of events, if the node supports it. Needs the compression extra.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait for the node.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON on stdout.")
@client_options
def send(
    address: str,
    files: tuple[str, ...],
    *,
    mode: str,
    csv_body: str,
    key: str | None,
    key_regex: str | None,
    key_column: str | None,
    key_template: str | None,
    property_columns: tuple[str, ...],
    partition: str | None,
    properties: tuple[tuple[str, str], ...],
    subject: str | None,
    content_type: str | None,
    window: int,
    compression: str | None,
    timeout: float,
    as_json: bool,
    endpoint: Endpoint,
) -> int:
    """Send events from FILES or stdin to the log at ADDRESS.
    Ends when all are durable, or reports the refused ones.

    \b
    Examples:
      echo 20.5 | amqp-streams send temps --key kitchen
      tail -f access.log | amqp-streams send access --key-regex '^(\\S+)'
      amqp-streams send temps --csv seattle-temps.csv --key-template '{date:.10}' --property-column temp
      amqp-streams send invoices --file *.pdf --property site=lisbon
      amqp-streams receive old --format json | amqp-streams send new --json-lines
    """
    if mode != _CSV and (key_column or key_template or property_columns):
        message = "--key-column, --key-template and --property-column need --csv"
        raise click.UsageError(message)
    if sum(one is not None for one in (key, key_regex, key_column, key_template)) > 1:
        message = "--key, --key-regex, --key-column and --key-template are alternatives: give one"
        raise click.UsageError(message)
    if mode == _FILE and not files:
        message = "--file needs FILES; '-' is stdin"
        raise click.UsageError(message)
    common = Common(key, content_type, subject, dict(properties), _pattern(key_regex))
    reading = Reading(mode, common, csv_body == "json", key_column, key_template, property_columns)
    node, log = endpoint.at(address)
    sending = Sending(partition, window, compression, timeout)
    tally = run(_send(node, log, files or ("-",), reading, sending))
    _report(tally, as_json=as_json)
    return _FAILED if tally.refused else 0


async def _send(
    node: Endpoint,
    log: str,
    files: Sequence[str],
    reading: Reading,
    sending: Sending,
) -> Tally:
    tally = Tally()
    total = _total_bytes(files)
    started = time.monotonic()
    async with (
        opened(node, log) as client,
        client.producer(
            log, partition=sending.partition, window=sending.window, compression=sending.compression
        ) as producer,
    ):
        with _accounted(producer, tally), progress("sending", total) as advance:
            for file in files:
                await _send_file(producer, file, reading, tally, advance, sending=sending)
            try:
                await producer.flush(timeout=sending.wait_s)
            except SendError as error:
                tally.refused += error.count
                # One reason is enough: as a rule, all events fail for the same.
                tally.first_refusal = str(error.failures[0][1])
    tally.seconds = time.monotonic() - started
    return tally


@contextmanager
def _accounted(producer: Producer, tally: Tally) -> Iterator[None]:
    """Report how many events were accepted when sending ends early: by Ctrl-C, or because the node
    is lost.
    """
    try:
        yield
    except (asyncio.CancelledError, AmqpStreamsError):
        # Otherwise the program ends before it has sent anything, and the error alone says enough.
        if tally.sent:
            open_ = producer.unsettled
            unknown = f"; it is not known whether {open_:,} more were accepted" if open_ else ""
            say(f"stopped: {tally.sent - open_:,} of {tally.sent:,} events are settled{unknown}")
        raise


async def _send_file(
    producer: Producer,
    file: str,
    reading: Reading,
    tally: Tally,
    advance: Advance,
    *,
    sending: Sending,
) -> None:
    bound = sending.partition is not None

    async def post(drafts: Sequence[Draft]) -> None:
        tally.keyless += sum(draft.event.key is None for draft in drafts) if reading.common.key_regex else 0
        # Neighbours only: sorting would change the order of events.
        for wanted, group in groupby(drafts, key=lambda draft: None if bound else draft.partition):
            events = [draft.event for draft in group]
            await producer.post_batch(events, wanted, timeout=sending.wait_s)
            tally.sent += len(events)
        advance(tally.bytes, note=f"{tally.sent:,} events")

    with descriptor_of(file) as descriptor:
        if reading.mode == _FILE:
            body = b"".join([data async for data in chunks(descriptor)])
            tally.bytes += len(body)
            await post([Draft(reading.common.event(body, content_type=mimetypes.guess_type(file)[0]))])
            return
        lines, drafter, number = Lines(quotes=reading.mode == _CSV), reading.drafter(), 0
        try:
            async for data in chunks(descriptor):
                tally.bytes += len(data)
                found = lines.feed(data)
                await _send_lines(post, drafter, found, number)
                # Errors name lines of the file, so the number continues over blocks.
                number += len(found)
            await _send_lines(post, drafter, lines.finish(), number)
        except InputError as error:
            message = f"{'stdin' if file == '-' else file}: {error} ({tally.sent} events were sent before)"
            raise InputError(message) from error


async def _send_lines(
    post: Callable[[Sequence[Draft]], Awaitable[None]], drafter: Drafter, lines: Iterable[bytes], before: int
) -> None:
    """Sends all lines before a line that is not valid."""
    drafts: list[Draft] = []
    try:
        for number, line in enumerate(lines, before + 1):
            draft = drafter(line, number)
            if draft is not None:
                drafts.append(draft)
    finally:
        # Also after an error: the lines before it were read, and a repeated command must not need them.
        await post(drafts)


def _pattern(text: str | None) -> re.Pattern[bytes] | None:
    if text is None:
        return None
    try:
        pattern = re.compile(text.encode())
    except re.error as error:
        message = f"--key-regex: {error}"
        raise click.UsageError(message) from error
    if not pattern.groups:
        message = f"--key-regex: {text!r} has no group: put the key in parentheses"
        raise click.UsageError(message)
    return pattern


def _total_bytes(files: Sequence[str]) -> int | None:
    paths = [Path(file) for file in files]
    return (
        sum(path.stat().st_size for path in paths)
        # The size of a pipe is not known, so the progress has no end.
        if "-" not in files and all(path.is_file() for path in paths)
        else None
    )


def _report(tally: Tally, *, as_json: bool) -> None:
    accepted = tally.sent - tally.refused
    if as_json:
        summary: Mapping[str, object] = {
            "sent": tally.sent,
            "accepted": accepted,
            "refused": tally.refused,
            "first_refusal": tally.first_refusal,
            "seconds": round(tally.seconds, 3),
        }
        print_json(summary)
    rate = accepted / tally.seconds if tally.seconds else 0.0
    say(
        f"{tally.sent:,} sent, {accepted:,} accepted, {tally.refused:,} refused in {tally.seconds:.2f} s "
        f"({rate:,.0f} events/s, {human_bytes(tally.bytes)} read)"
    )
    if tally.keyless:
        say(f"{tally.keyless:,} lines had no key: --key-regex did not match them")
    if tally.first_refusal is not None:
        say(f"the first refusal: {tally.first_refusal}")
