"""`amqp-streams receive`: events from a place in the log on, to where they end or for ever."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import click

from amqp_streams.cli.connection import Endpoint, client_options, run
from amqp_streams.cli.console import say
from amqp_streams.cli.parameters import misuse, now_ms
from amqp_streams.cli.positions import AtTime, Bounds, Remaining, ends_of, parse_place, parse_start
from amqp_streams.cli.rendering import Format, Shown, render
from amqp_streams.cli.writing import Output
from amqp_streams.client import Client, Consumer, ReceivedEvent, Start
from amqp_streams.errors import ConfigError, WireError

_FAILED: Final = 1
_BATCH_EVENTS: Final = 500
_SLICE_S: Final = 1.0
"""How often a wait looks up: is stdout still read, has the moment of --until passed."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to read, and how much of it."""

    log: str
    partition: str | None
    start: Start
    until: str | None
    follow: bool
    events_max: int | None
    form: Format
    timeout_s: float | None
    credit: int


@click.command(short_help="Read events from an offset or a time on.")
@click.argument("address")
@click.option("--partition", help="Only this partition.  [default: all, each in its order]")
@click.option(
    "--from",
    "start",
    metavar="PLACE",
    help="The first event: earliest, latest, an offset, a time.  [default: earliest; with --follow: latest]",
)
@click.option(
    "--until", metavar="PLACE", help="Stop before this: an offset, a time, or end: what there is now.  [default: end; with --follow: never]"
)
@click.option("--follow", is_flag=True, help="Go on with what comes.")
@click.option("--max", "events_max", type=click.IntRange(min=1), metavar="N", help="Stop after this many events.")
@click.option("--format", "form", type=click.Choice([one.value for one in Format]), default=Format.TEXT.value, show_default=True,
              help="text for people, json a line each, body and a line end, raw: the body alone.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(min=0.001), metavar="SECONDS", help="Stop when nothing has come for this long.")
@click.option("--credit", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="Events on their way at a time.")
@client_options
def receive(
    address: str,
    *,
    partition: str | None,
    start: str | None,
    until: str | None,
    follow: bool,
    events_max: int | None,
    form: str,
    timeout: float | None,
    credit: int,
    endpoint: Endpoint,
) -> int:
    """Read the events of the log at ADDRESS. Reading takes nothing away.

    A PLACE is an offset (42 or 0000000000000042), a time (2026-11-21T06:30:00Z, without a zone UTC; milliseconds since 1970, 13 digits)
    or a time before now (-1h). Offsets count in each partition. The first event is included, the end is not.

    \b
    Examples:
      amqp-streams receive temps
      amqp-streams receive temps --follow --format json | jq .body
      amqp-streams receive temps --partition 0 --from 42 --max 10
      amqp-streams receive temps --from -1h --until -30m
      amqp-streams receive temps --from 2026-11-21T06:30 --follow
    """
    node, log = endpoint.at(address)
    moment = now_ms()
    try:
        first = parse_start(start or ("latest" if follow else "earliest"), moment)
    except ValueError as error:
        raise misuse("--from", error) from error
    bounds = Bounds(None, None)
    if until is not None and until != "end":
        try:
            bounds = Bounds(parse_place(until, moment), None)
        except ValueError as error:
            message = f"{error}, nor 'end'"
            raise misuse("--until", message) from error
    wanted = Request(log, partition, first, until, follow and until != "end", events_max, Format(form), timeout, credit)
    return run(_receive(node, wanted, bounds))


async def _receive(node: Endpoint, wanted: Request, bounds: Bounds) -> int:
    async with node.client() as client:
        remaining = await _remaining(client, wanted, bounds)
        if remaining is not None and not remaining:
            return 0
        credit = min(wanted.credit, wanted.events_max or wanted.credit)
        async with client.consumer(wanted.log, partition=wanted.partition, start=wanted.start, credit=credit) as consumer:
            return await _copy(consumer, wanted, remaining, bounds)


async def _remaining(client: Client, wanted: Request, bounds: Bounds) -> Remaining | None:
    if wanted.follow and bounds.place is None:
        return None
    info = await client.info(wanted.log)
    names = [one.partition for one in info.partitions]
    if wanted.partition is not None and wanted.partition not in names:
        message = f"--partition: {wanted.log} has no partition {wanted.partition!r}; there are {', '.join(names)}"
        raise ConfigError(message)
    if not wanted.follow:
        bounds = Bounds(bounds.place, ends_of(info, wanted.partition))
    return Remaining(bounds, info, wanted.start, wanted.partition)


async def _copy(consumer: Consumer, wanted: Request, remaining: Remaining | None, bounds: Bounds) -> int:
    """Events to stdout until there is nothing more to come."""
    output = Output()
    left = wanted.events_max
    heard = time.monotonic()
    while True:
        size = _BATCH_EVENTS if left is None else min(_BATCH_EVENTS, left)
        events = await consumer.receive(size, timeout=min(_SLICE_S, wanted.timeout_s or _SLICE_S))
        if events:
            kept = _kept(events, remaining)
            await output.write(b"".join(line_of(event, wanted.form) for event in kept))
            heard = time.monotonic()
            if left is not None:
                left -= len(kept)
        output.check()
        if left == 0 or (remaining is not None and not remaining):
            return 0
        if not events and _past(bounds):
            return 0
        if wanted.timeout_s is not None and time.monotonic() - heard >= wanted.timeout_s:
            say(f"nothing came for {wanted.timeout_s:g} s")
            return 0 if wanted.follow else _FAILED


def line_of(event: ReceivedEvent, form: Format) -> bytes:
    """What is printed for an event. One that no client can take apart must not stand in the way of those after it: it is shown whole."""
    try:
        return render(shown(event, form), form)
    except WireError as error:
        say(f"partition {event.partition}, offset {event.offset}: {error}; the message is shown as it is stored")
        return render(Shown(event.partition, event.offset, event.timestamp_ms, body=event.encode()), form)


def shown(event: ReceivedEvent, form: Format) -> Shown:
    """An event as it is printed; what the form does not show is not taken out of the message."""
    if form is Format.BODY or form is Format.RAW:
        return Shown(None, None, None, body=_stripped(event).body)
    place, message = (event.partition, event.offset, event.timestamp_ms), _stripped(event)
    if form is Format.TEXT:
        return Shown(*place, key=message.key, body=message.body)
    return Shown(
        *place,
        key=message.key,
        subject=message.subject,
        content_type=message.content_type,
        properties=message.properties,
        annotations=message.annotations,
        body=message.body,
    )


def _stripped(event: ReceivedEvent) -> ReceivedEvent:
    """The event without the delivery's annotations: decoding them is most of the work, and the place was read from them already."""
    return ReceivedEvent(event.encode())


def _kept(events: Sequence[ReceivedEvent], remaining: Remaining | None) -> Sequence[ReceivedEvent]:
    if remaining is None:
        return events
    return [event for event in events if remaining.wants(event.partition, event.offset, event.timestamp_ms)]


def _past(bounds: Bounds) -> bool:
    """The moment at which reading stops is over, and nothing is on its way."""
    return isinstance(bounds.place, AtTime) and now_ms() > bounds.place.ms + 1000
