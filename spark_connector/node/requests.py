"""[io] What reading asks of a node: what its logs have, where a time is, and the events of a range.

The one place where the source meets the engine's client. Everything that can pass by itself is tried again here.
"""

from collections.abc import Iterator, Mapping, Sequence

from amqp_streams.client import LogExtent, sql_filter
from amqp_streams.client.blocking import Client
from spark_connector.errors import StreamNotFoundError
from spark_connector.node.connections import FAILURES, client, pause, retried
from spark_connector.options.settings import ConnectionOptions
from spark_connector.planning.holdings import Available, Held, LogState
from spark_connector.planning.ranges import OffsetRange
from spark_connector.rows.runs import Run


def available(options: ConnectionOptions, streams: Sequence[str], *, missing_fail: bool = True) -> Available:
    """What each log has now: one request. Logs that are not there are left out, or fail.

    Raises:
        StreamNotFoundError, NodeError.
    """

    def ask(node: Client) -> Mapping[str, LogExtent]:
        return node.extents(streams, missing_ok=True, timeout=options.operation_timeout_ms / 1000)

    where = f"stream {', '.join(map(repr, streams))}"
    told = retried(options, "asking what logs have", ask, where=where)
    missing = [stream for stream in streams if stream not in told]
    if missing and missing_fail:
        raise not_found(options, missing[0])
    return {stream: _state(told[stream]) for stream in streams if stream in told}


def not_found(options: ConnectionOptions, stream: str) -> StreamNotFoundError:
    """The error for a log that is not there."""
    return StreamNotFoundError(
        "there is no such log", f"stream {stream!r}, node {options}", "See what there is with `amqp-streams log list`"
    )


def _state(extent: LogExtent) -> LogState:
    partitions = {int(one.partition): Held(one.earliest, one.next, one.bytes) for one in extent.partitions}
    return LogState(extent.incarnation, dict(sorted(partitions.items())))


def offsets_at(options: ConnectionOptions, stream: str, partitions: Sequence[int], time_ms: int) -> dict[int, int]:
    """By partition the number of the first event stored at or after a time, in ms since 1970 UTC; where there is none, of the next.

    Raises:
        StreamNotFoundError, NodeError.
    """

    def ask(node: Client) -> dict[str, int]:
        return node.offset_at(stream, partitions, time_ms, timeout=options.operation_timeout_ms / 1000)

    told = retried(options, "looking for a time", ask, where=f"stream {stream!r}")
    return {int(partition): number for partition, number in told.items()}


def read(options: ConnectionOptions, wanted: OffsetRange, condition: str | None) -> Iterator[Run]:
    """The events of a range that are there, in order; of which `condition` is true, if there is one.

    Raises:
        StreamNotFoundError: the log was deleted, or made anew, since the range was planned.
        NodeError: the node cannot be read from in the tries that there are, or refuses.
    """
    at, attempt = wanted.start, 0
    while at < wanted.end:
        try:
            for run in _runs(client(options), options, wanted, at, condition):
                attempt = 0
                at = run.offsets[-1] + 1
                yield run
            return
        except FAILURES as error:
            pause(options, error, "reading", attempt, where=str(wanted))
            attempt += 1


def check_filter(options: ConnectionOptions, stream: str, condition: str) -> None:
    """Have the node read the filter, before tasks come to it.

    Raises:
        NodeError: it cannot be read; the message says where.
    """

    def attach(node: Client) -> None:
        with node.consumer(stream, credit=1, settle="none", filters={"condition": sql_filter(condition)}):
            pass

    retried(options, "attaching with the filter", attach, where=f"stream {stream!r}")


def _runs(node: Client, options: ConnectionOptions, wanted: OffsetRange, at: int, condition: str | None) -> Iterator[Run]:
    timeout = options.operation_timeout_ms / 1000
    with node.read_range(
        wanted.stream, wanted.partition, at, wanted.end, filter=condition, incarnation=wanted.incarnation, timeout=timeout
    ) as reader:
        for run in reader:
            yield Run(run.offsets, run.timestamps_ms, run.messages)
