"""`amqp-streams receive`: read events from a start to an end, or continuously."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import click

from amqp_streams import names
from amqp_streams.cli.completion import group_names, log_names
from amqp_streams.cli.connection import Endpoint, NodeCommand, client_options, opened, run
from amqp_streams.cli.copying import Copied, Ending, copy
from amqp_streams.cli.membership import Member
from amqp_streams.cli.terminal.console import say
from amqp_streams.cli.terminal.parameters import PROPERTY, now_ms, usage_error
from amqp_streams.cli.terminal.rendering import Format, iso_time
from amqp_streams.cli.terminal.starts import AtOffset, Bounds, Remaining, ends_of, parse_bound, parse_start
from amqp_streams.client import (
    AfterTime,
    Client,
    Consumer,
    Earliest,
    Latest,
    LinkRefusedError,
    Start,
    sql_filter,
)
from amqp_streams.errors import ConfigError
from amqp_streams.wire.codec import Described, Symbol, Value

CONTAINER: Final = "amqp-streams receive"
"""The container of a --durable subscription without --container-id."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to read."""

    log: str
    start: Start
    partition: str | None = None
    follow: bool = False
    bounds: Bounds = field(default_factory=lambda: Bounds(None, None))
    events_max: int | None = None
    form: Format = Format.TEXT
    timeout_s: float | None = None
    credit: int = 1000
    filters: Mapping[str, object] = field(default_factory=dict)
    group: str | None = None
    epoch: int | None = None
    durable: str | None = None

    @property
    def resumes(self) -> bool:
        """Whether the node keeps the cursor, so that the start is not known here."""
        return self.group is not None or self.durable is not None


@click.command(cls=NodeCommand, short_help="Read events from an offset or a time on.")
@click.argument("address", shell_complete=log_names)
@click.option("--partition", help="Only this partition.  [default: all, each in its order]")
@click.option(
    "--from",
    "start",
    metavar="START",
    help="The first event: earliest, latest, an offset, a time.  [default: earliest; with --follow: latest]",
)
@click.option(
    "--until",
    metavar="END",
    help=(
        "Stop before this: an offset, a time, or end, the present end.  [default: end; with --follow: never]"
    ),
)
@click.option("--follow", is_flag=True, help="Continue with new events.")
@click.option(
    "--max", "events_max", type=click.IntRange(min=1), metavar="N", help="Stop after this many events."
)
@click.option(
    "--where", metavar="SQL", help="Only events for which this is true: temp > 75 AND site LIKE 'roof%'."
)
@click.option(
    "--property",
    "properties",
    type=PROPERTY,
    multiple=True,
    metavar="NAME=VALUE",
    help="Only events with this application property, a text. May be repeated; all must match.",
)
@click.option(
    "--group",
    metavar="NAME",
    shell_complete=group_names,
    help="Join this consumer group: each partition has one member, and the node keeps a cursor.",
)
@click.option(
    "--epoch",
    type=click.IntRange(0, 2**64 - 1),
    metavar="N",
    help="Take the partition over from a consumer with a smaller epoch. Requires --partition.",
)
@click.option(
    "--durable", metavar="NAME", help="Continue the subscription NAME, whose cursor the node keeps."
)
@click.option(
    "--container-id",
    metavar="ID",
    help=(
        f"The container-id, which owns subscriptions.  [default: '{CONTAINER}' with --durable, else random]"
    ),
)
@click.option(
    "--format",
    "form",
    type=click.Choice([one.value for one in Format]),
    default=Format.TEXT.value,
    show_default=True,
    help="text: for people; json: one line each; body: with a line end; raw: the body only.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--timeout",
    "timeout",
    type=click.FloatRange(min=0.001),
    metavar="SECONDS",
    help="Stop after this time without an event.",
)
@click.option(
    "--credit", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="Events in flight."
)
@client_options
def receive(
    address: str,
    *,
    partition: str | None,
    start: str | None,
    until: str | None,
    follow: bool,
    events_max: int | None,
    where: str | None,
    properties: tuple[tuple[str, str], ...],
    group: str | None,
    epoch: int | None,
    durable: str | None,
    container_id: str | None,
    form: str,
    as_json: bool,
    timeout: float | None,
    credit: int,
    endpoint: Endpoint,
) -> int:
    """Read the events of the log at ADDRESS. Reading does not remove events.

    START and END are an offset (42 or 0000000000000042), a time (2026-11-21T06:30:00Z, UTC if it has no zone;
    or milliseconds since 1970, 13 digits), or a time before now (-1h). Offsets count within a partition. The
    first event is included, the end is excluded.

    In SQL (AMQP Filter Expressions 1.0) a bare name is an application property, p.subject is a field of the
    properties section, m.event-streams-group-key is a message annotation. Filters do not see the body: 'send
    --property-column' copies columns to properties.

    Without --follow, the members of a group end when together they have read all events. Partitions move as
    members join and leave.

    With --group or --durable, --from counts only the first time; later the node's cursor is used. A printed
    event is settled; an event that was not printed is delivered again.

    \b
    Examples:
      amqp-streams receive temps
      amqp-streams receive temps --follow --json | jq .body
      amqp-streams receive temps --partition 0 --from 42 --max 10
      amqp-streams receive temps --from -1h --until -30m
      amqp-streams receive temps --from 2026-11-21T06:30 --follow
      amqp-streams receive temps --where "temp > 75"
      amqp-streams receive temps --property site=roof --follow
      amqp-streams receive temps --group billing --follow
      amqp-streams receive temps --group billing --partition 0 --epoch 7
      amqp-streams receive temps --durable nightly-report
    """
    node, log = endpoint.at(address)
    moment = now_ms()
    if epoch is not None and partition is None:
        raise usage_error("--epoch", "needs --partition")
    resumes = _resumes(group, durable, until)
    wanted = Request(
        log,
        _start(start or ("latest" if follow and not resumes else "earliest"), moment),
        partition=partition,
        follow=follow and until != "end",
        bounds=_bounds(until, moment),
        events_max=events_max,
        form=Format.JSON if as_json else Format(form),
        timeout_s=timeout,
        credit=credit,
        filters=filters_of(where, properties),
        group=group,
        epoch=epoch,
        durable=durable or group,
    )
    return run(_receive(node, wanted, container_id or (CONTAINER if durable and group is None else None)))


def _resumes(group: str | None, durable: str | None, until: str | None) -> bool:
    """Whether the node keeps the cursor."""
    if group is not None and durable is not None:
        raise usage_error("--durable", "cannot be used with --group: a group has a cursor of its own")
    resumes = group is not None or durable is not None
    if resumes and until not in (None, "end"):
        raise usage_error(
            "--until", "with --group or --durable, only 'end' is allowed: received events are settled"
        )
    return resumes


def _start(text: str, now_ms: int) -> Start:
    try:
        return parse_start(text, now_ms)
    except ValueError as error:
        raise usage_error("--from", error) from error


def _bounds(until: str | None, now_ms: int) -> Bounds:
    if until is None or until == "end":
        return Bounds(None, None)
    try:
        return Bounds(parse_bound(until, now_ms), None)
    except ValueError as error:
        message = f"{error}, nor 'end'"
        raise usage_error("--until", message) from error


def filters_of(where: str | None, properties: Sequence[tuple[str, str]]) -> dict[str, object]:
    """The filters for the node. Texts are literal: `&` at the beginning is not a modifier here."""
    filters: dict[str, object] = {} if where is None else {"where": sql_filter(where)}
    if properties:
        texts: dict[Value, Value] = {
            # In a property filter, `&` begins a modifier (FILTEX 4.2), and `&&` stands for the character.
            name: f"&{value}" if value.startswith("&") else value
            for name, value in properties
        }
        filters["property"] = Described(Symbol(names.FILTEX_APPLICATION_PROPERTIES), texts)
    return filters


async def _receive(node: Endpoint, wanted: Request, container_id: str | None) -> int:
    async with opened(node, wanted.log, container_id=container_id) as client:
        remaining = await _remaining(client, wanted)
        if remaining is not None and not remaining and not wanted.filters:
            say(f"nothing to read: {wanted.log} has no event {_start_text(wanted.start)}")
            return 0

        async def reached() -> bool:
            # Filters may reject all later events, so the end of the log shows that the end was reached.
            assert isinstance(wanted.bounds.end, AtOffset), "asked only then"
            return (
                min(ends_of(await client.info(wanted.log), wanted.partition).values())
                >= wanted.bounds.end.number
            )

        # The last event may never come: a filter rejects it, or its offset belongs to no event.
        absent = bool(wanted.filters) or (remaining is not None and remaining.gaps)
        ending = Ending(
            follow=wanted.follow,
            drained=not wanted.follow and (absent or wanted.resumes),
            settles=wanted.resumes,
            events_max=wanted.events_max,
            timeout_s=wanted.timeout_s,
            remaining=remaining,
            bounds=wanted.bounds,
            reached=reached if absent and isinstance(wanted.bounds.end, AtOffset) else None,
        )
        # With a partition, the link is an ordinary consumer link that claims this partition.
        if wanted.group is not None and wanted.partition is None:
            return (await _join(client, wanted, wanted.group, ending)).status
        async with _consumer(client, wanted) as consumer:
            copied = await copy(consumer, ending, wanted.form)
        # A person who filters on the body gets nothing, and would not learn why.
        if wanted.filters and remaining is not None and not wanted.follow and copied == (0, 0):
            say(_unmatched(remaining.events))
        return copied.status


def _start_text(start: Start) -> str:
    """The start, in words."""
    if isinstance(start, Earliest):
        return "at all"
    if isinstance(start, Latest):
        return "after the latest one; wait for new ones with --follow"
    if isinstance(start, AfterTime):
        return f"stored at or after {iso_time(start.timestamp_ms + 1)}"
    return f"with offset {start.offset + 1} or a later one; 'amqp-streams info' shows the offsets"


def _unmatched(events: int | None) -> str:
    count = "no event" if events is None else f"0 of {events:,} events"
    return (
        f"{count} matched. A filter sees properties and annotations of events, not their bodies: see"
        " 'amqp-streams receive --help'"
    )


async def _join(client: Client, wanted: Request, group: str, ending: Ending) -> Copied:
    """Read as a member of a group, from the partitions that it is assigned."""
    member = Member(
        client, wanted.log, group, {} if wanted.follow else ends_of(await client.info(wanted.log))
    )
    member.consumer = client.group_consumer(
        wanted.log,
        group,
        start=wanted.start,
        settle="manual",
        credit=_credit(wanted),
        filters=wanted.filters or None,
        on_assigned=member.assigned if wanted.follow else None,
        on_revoked=member.revoked if wanted.follow else None,
    )
    async with member.consumer:
        try:
            return await copy(member, ending, wanted.form)
        finally:
            # Before the links end: their partitions are then not reported as revoked.
            member.leaving = True


def _consumer(client: Client, wanted: Request) -> Consumer:
    options: dict[str, Any] = {} if not wanted.filters else {"filters": wanted.filters}
    if wanted.resumes:
        options |= {"durable": wanted.durable, "settle": "manual"}
    if wanted.group is not None:
        options["group"] = wanted.group
    if wanted.epoch is not None:
        options["epoch"] = wanted.epoch
    return client.consumer(
        wanted.log, partition=wanted.partition, start=wanted.start, credit=_credit(wanted), **options
    )


def _credit(wanted: Request) -> int:
    # More credit would bring events that are never printed, and with a cursor they would come again.
    return min(wanted.credit, wanted.events_max or wanted.credit)


async def _remaining(client: Client, wanted: Request) -> Remaining | None:
    """The partitions with unread events, if that can be known here."""
    # The node knows where the cursor is, so what remains cannot be computed here.
    if wanted.resumes or (wanted.follow and wanted.bounds.end is None):
        return None
    try:
        info = await client.info(wanted.log)
    except LinkRefusedError as error:
        if error.condition != names.UNAUTHORIZED_ACCESS:
            raise
        more = "It shows where the log ends; 'receive --follow' does without it"
        raise LinkRefusedError(error.condition, f"{error.description}. {more}") from error
    known = [one.partition for one in info.partitions]
    if wanted.partition is not None and wanted.partition not in known:
        message = (
            f"--partition: {wanted.log} has no partition {wanted.partition!r}; its partitions are"
            f" {', '.join(known)}"
        )
        raise ConfigError(message)
    bounds = wanted.bounds if wanted.follow else Bounds(wanted.bounds.end, ends_of(info, wanted.partition))
    return Remaining(bounds, info, wanted.start, wanted.partition)
