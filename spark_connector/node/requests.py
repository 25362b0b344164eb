"""[io] The requests of the source to a node.

Extents of logs, the offset of a time, and the events of a range.

This is the only module of the source that uses the engine's client. It retries temporary failures.
"""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from amqp_streams.client import LogExtent, sql_filter
from amqp_streams.client.blocking import Client
from amqp_streams.client.raw import Sections
from spark_connector.errors import StreamNotFoundError
from spark_connector.node.connections import FAILURES, client, pause, retried
from spark_connector.options.settings import ConnectionOptions
from spark_connector.planning.holdings import Available, Held, LogState
from spark_connector.planning.ranges import OffsetRange
from spark_connector.rows.runs import Run
from spark_connector.rows.slices import contents_of


def available(options: ConnectionOptions, streams: Sequence[str], *, missing_fail: bool = True) -> Available:
    """Return the current state of each log, in one request.

    A missing log is an error if `missing_fail`; otherwise it is omitted.

    Raises:
        StreamNotFoundError: a log does not exist.
        NodeError: all retries failed, or the node refused the request.
    """

    def ask(node: Client) -> Mapping[str, LogExtent]:
        # Missing logs are found below, and in one request for all.
        return node.extents(streams, missing_ok=True, timeout=options.operation_timeout_ms / 1000)

    where = f"log {', '.join(map(repr, streams))}"
    extents = retried(options, "reading the extents of logs", ask, where=where)
    missing = [stream for stream in streams if stream not in extents]
    if missing and missing_fail:
        raise not_found(options, missing[0])
    return {stream: _state(extents[stream]) for stream in streams if stream in extents}


def not_found(options: ConnectionOptions, stream: str) -> StreamNotFoundError:
    """Return the error for a log that does not exist."""
    return StreamNotFoundError(
        "the log does not exist",
        f"log {stream!r}, node {options}",
        "List the logs with `amqp-streams log list`",
    )


def _state(extent: LogExtent) -> LogState:
    partitions = {
        int(one.partition): Held(one.earliest, one.next, one.bytes, one.gaps) for one in extent.partitions
    }
    return LogState(extent.incarnation, dict(sorted(partitions.items())))


def offsets_at(
    options: ConnectionOptions, stream: str, partitions: Sequence[int], time_ms: int
) -> dict[int, int]:
    """Return, for each partition, the offset from which on events are not older than a time.

    It is the offset of the first event that was stored at `time_ms` (since 1970 UTC) or later; without such
    an event, the offset of the next event.

    Raises:
        StreamNotFoundError: the log does not exist.
        NodeError: all retries failed, or the node refused the request.
    """

    def ask(node: Client) -> dict[str, int]:
        return node.offset_at(stream, partitions, time_ms, timeout=options.operation_timeout_ms / 1000)

    offsets = retried(options, "looking up a time", ask, where=f"log {stream!r}")
    return {int(partition): offset for partition, offset in offsets.items()}


def read(options: ConnectionOptions, wanted: OffsetRange, condition: str | None) -> Iterator[Run]:
    """Yield the events of a range that still exist, in order. `condition`: only events for which it is true.

    After a temporary failure, reading continues after the last event.

    Raises:
        StreamNotFoundError: the log was deleted, or recreated, after the range was planned.
        NodeError: all retries failed, or the node refused the request.
    """
    at, attempt = wanted.start, 0
    while at < wanted.end:
        try:
            for run in _runs(client(options), options, wanted, at, condition):
                # The retries count failures in a row: an event shows that the node works.
                attempt = 0
                at = run.offsets[-1] + 1
                yield run
            return
        except FAILURES as error:
            pause(options, error, "reading", attempt, where=str(wanted))
            attempt += 1


def check_filter(options: ConnectionOptions, stream: str, condition: str) -> None:
    """Let the node check the filter, so that a mistake fails on the driver and not in every task.

    Raises:
        NodeError: the filter is not valid; the message contains the location.
    """

    def attach(node: Client) -> None:
        # A short-lived link: the node compiles the filter at the attach.
        with node.consumer(stream, credit=1, settle="none", filters={"condition": sql_filter(condition)}):
            pass

    retried(options, "attaching with the filter", attach, where=f"log {stream!r}")


def _runs(
    node: Client, options: ConnectionOptions, wanted: OffsetRange, at: int, condition: str | None
) -> Iterator[Run]:
    timeout = options.operation_timeout_ms / 1000
    with node.read_range(
        wanted.stream,
        wanted.partition,
        at,
        wanted.end,
        filter=condition,
        compression=options.compression,
        incarnation=wanted.incarnation,
        timeout=timeout,
    ) as reader:
        for run in reader:
            content = run.content
            messages = (
                contents_of(content) if isinstance(content, Sections) else pa.array(content, pa.binary())
            )
            yield Run(run.offsets, run.timestamps_ms, messages)
