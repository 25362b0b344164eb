"""[io] What reading asks of a node: what its logs have, where a time is, and the events of a range.

The one place where the source meets the engine's client. Everything that can pass by itself is tried again here.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from amqp_streams.client import AfterTime, LogInfo
from amqp_streams.client.blocking import Client
from spark_connector.errors import StreamNotFoundError
from spark_connector.holdings import Available, Held, LogState
from spark_connector.links import FAILURES, client, pause, retried
from spark_connector.planning import OffsetRange
from spark_connector.runs import Run
from spark_connector.settings import ConnectionOptions


def available(options: ConnectionOptions, streams: Sequence[str], *, missing_fail: bool = True) -> Available:
    """What each log has now. Logs that are not there are left out, or fail.

    Raises:
        StreamNotFoundError, NodeError.
    """
    found: dict[str, LogState] = {}
    for stream in streams:
        try:
            info = retried(options, "asking what the log has", partial(_info, stream, options), where=f"stream {stream!r}")
        except StreamNotFoundError:
            if missing_fail:
                raise
            continue
        found[stream] = _state(info)
    return found


def _info(stream: str, options: ConnectionOptions, node: Client) -> LogInfo:
    return node.info(stream, timeout=options.operation_timeout_ms / 1000)


def _state(info: LogInfo) -> LogState:
    partitions = {}
    for one in info.partitions:
        earliest = 0 if one.earliest_offset is None else int(one.earliest_offset)
        following = 0 if one.latest_offset is None else int(one.latest_offset) + 1
        partitions[int(one.partition)] = Held(earliest, following, one.bytes or 0)
    return LogState(info.incarnation, dict(sorted(partitions.items())))


def first_at(options: ConnectionOptions, stream: str, partition: int, time_ms: int) -> int | None:
    """The number of the first event stored at or after a time, in ms since 1970 UTC; None: there is none."""

    def seek(node: Client) -> int | None:
        start = AfterTime(time_ms - 1)
        with node.consumer(stream, partition=partition, start=start, credit=1, settle="none") as consumer:
            events = consumer.receive_retained(1, options.operation_timeout_ms / 1000)
            return int(events[0].offset) if events and events[0].offset is not None else None

    return retried(options, "looking for a time", seek, where=f"stream {stream!r}, partition {partition}")


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


def _runs(node: Client, options: ConnectionOptions, wanted: OffsetRange, at: int, condition: str | None) -> Iterator[Run]:
    timeout = options.operation_timeout_ms / 1000
    with node.read_range(
        wanted.stream, wanted.partition, at, wanted.end, filter=condition, incarnation=wanted.incarnation, timeout=timeout
    ) as reader:
        for run in reader:
            yield Run(run.offsets, run.timestamps_ms, run.messages)
