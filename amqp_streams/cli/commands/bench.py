"""`amqp-streams bench`: rates and latency of a node."""

from collections.abc import Awaitable, Callable

import click

from amqp_streams.cli.completion import log_names
from amqp_streams.cli.connection import Endpoint, client_options, opened, run
from amqp_streams.cli.measuring import Load, measure_consuming, measure_latency, measure_producing
from amqp_streams.cli.statistics import PERCENTILES, Result
from amqp_streams.cli.terminal.console import Advance, print_json, print_table, progress
from amqp_streams.cli.terminal.parameters import SIZE
from amqp_streams.client import ManagementError
from amqp_streams.log_settings import PARTITIONS_MAX

_FAILED = 1
_CONFLICT = 409

_EVENTS = click.option(
    "--events", type=click.IntRange(1), default=100_000, show_default=True, help="Number of measured events."
)
_SIZE = click.option(
    "--size", type=SIZE, default="100", show_default=True, metavar="SIZE", help="Size of an event's body."
)
_CONNECTIONS = click.option(
    "--connections",
    "--producers",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Number of connections, with one link each.",
)
_WINDOW = click.option(
    "--window",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    help="Events in flight on a link.",
)
_WARMUP = click.option(
    "--warmup",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Events before the measurement begins.",
)
_PARTITIONS = click.option(
    "--partitions",
    type=click.IntRange(1, PARTITIONS_MAX),
    help="Create the log with this many if it does not exist.",
)
_BOUND = click.option(
    "--bound", is_flag=True, help="Bind links to the partitions in turns; otherwise the node chooses."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(short_help="Measure rates and latency.")
def bench() -> None:
    """Measure accepted events, delivered events and latency of a node.
    The log receives the events and keeps them.

    \b
    Examples:
      amqp-streams bench produce perf --partitions 4 --events 1000000 --size 100
      amqp-streams bench consume perf
      amqp-streams bench latency perf --rate 1000 --events 10000 --warmup 1000
    """


@bench.command()
@click.argument("address", shell_complete=log_names)
@_EVENTS
@_SIZE
@click.option(
    "--rate",
    type=click.FloatRange(min=0.1),
    metavar="EVENTS/S",
    help="Over all connections.  [default: unlimited]",
)
@_CONNECTIONS
@_PARTITIONS
@_BOUND
@_WINDOW
@_WARMUP
@_JSON
@client_options
def produce(
    address: str,
    *,
    events: int,
    size: int,
    rate: float | None,
    connections: int,
    partitions: int | None,
    bound: bool,
    window: int,
    warmup: int,
    as_json: bool,
    endpoint: Endpoint,
) -> int:
    """Send events to ADDRESS, as fast as possible or at a rate.
    Latency is from the time an event is due until it is accepted.

    \b
    Examples:
      amqp-streams bench produce perf --partitions 4 --events 1000000
      amqp-streams bench produce perf --connections 4 --size 1KiB --rate 50000 --json
    """
    node, log = endpoint.at(address)
    load = Load(log, events, size, rate, connections, window, warmup, bound)
    return _measured(node, load, partitions, measure_producing, as_json=as_json)


@bench.command()
@click.argument("address", shell_complete=log_names)
@click.option(
    "--events", type=click.IntRange(1), help="Number of measured events.  [default: all in the log]"
)
@_CONNECTIONS
@_BOUND
@_WINDOW
@_WARMUP
@_JSON
@client_options
def consume(
    address: str,
    *,
    events: int | None,
    connections: int,
    bound: bool,
    window: int,
    warmup: int,
    as_json: bool,
    endpoint: Endpoint,
) -> int:
    """Read the log at ADDRESS from its earliest event on.
    Its partitions are distributed over the connections.

    \b
    Examples:
      amqp-streams bench consume perf
      amqp-streams bench consume perf --events 1000000 --connections 4 --json
    """
    node, log = endpoint.at(address)
    there = run(_events_there(node, log))
    wanted = there - warmup if events is None else events
    # Otherwise the measurement would wait for events that do not exist.
    if wanted < 1 or wanted + warmup > there:
        message = f"{log} has {there} events: fewer than --events plus --warmup"
        raise click.UsageError(message)
    load = Load(log, wanted, 0, None, connections, window, warmup, bound)
    return _measured(node, load, None, measure_consuming, as_json=as_json)


@bench.command()
@click.argument("address", shell_complete=log_names)
@_EVENTS
@_SIZE
@click.option(
    "--rate",
    type=click.FloatRange(min=0.1),
    default=1000.0,
    show_default=True,
    metavar="EVENTS/S",
    help="Events per second.",
)
@_PARTITIONS
@_WINDOW
@_WARMUP
@_JSON
@client_options
def latency(
    address: str,
    *,
    events: int,
    size: int,
    rate: float,
    partitions: int | None,
    window: int,
    warmup: int,
    as_json: bool,
    endpoint: Endpoint,
) -> int:
    """Send events to ADDRESS at a rate and receive them back.
    Latency is from the time an event is due until it is received.

    \b
    Examples:
      amqp-streams bench latency perf --events 10000 --rate 1000 --warmup 1000
      amqp-streams bench latency perf --rate 10000 --size 1KiB --json
    """
    node, log = endpoint.at(address)
    load = Load(log, events, size, rate, 1, window, warmup)
    return _measured(node, load, partitions, measure_latency, as_json=as_json)


def _measured(
    node: Endpoint,
    load: Load,
    partitions: int | None,
    measure: Callable[[Endpoint, Load, Advance], Awaitable[Result]],
    *,
    as_json: bool,
) -> int:
    async def measured() -> Result:
        if partitions is not None:
            await _make(node, load.log, partitions)
        with progress("measuring", load.events + load.warmup) as advance:
            return await measure(node, load, advance)

    result = run(measured())
    if as_json:
        print_json(result.as_json())
    else:
        percentiles = [name for name, _ in PERCENTILES]
        columns = (
            "",
            "EVENTS",
            "SECONDS",
            "EVENTS/S",
            "MB/S",
            *(f"{name} ms" for name in percentiles),
            "REFUSED",
        )
        row = (
            result.what,
            result.events,
            result.seconds,
            round(result.events_per_second),
            result.megabytes_per_second,
            *(result.latency_ms.get(name) for name in percentiles),
            result.refused,
        )
        print_table(columns, [row])
    return _FAILED if result.refused else 0


async def _make(node: Endpoint, log: str, partitions: int) -> None:
    async with opened(node) as client:
        try:
            await client.management.create_log(log, partitions=partitions)
        except ManagementError as error:
            # The log exists already: it is used as it is.
            if error.status != _CONFLICT:
                raise


async def _events_there(node: Endpoint, log: str) -> int:
    async with opened(node) as client:
        return sum(one.event_count or 0 for one in (await client.info(log)).partitions)
