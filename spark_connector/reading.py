"""[io] Where a query begins and ends, and the rows of one task.

A task reads its ranges, checks that no event is missing, and makes record batches.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from spark_connector.errors import OffsetError, StreamNotFoundError
from spark_connector.node import requests
from spark_connector.options.settings import ReadOptions, Where
from spark_connector.planning.holdings import Available, Held
from spark_connector.planning.offsets import Edge, Numbers, Positions, Times
from spark_connector.planning.ranges import (
    Loss,
    OffsetRange,
    Task,
    located,
    loss_error,
    renewed,
    replaced,
    tasks,
)
from spark_connector.rows.record_batches import RowMaker
from spark_connector.rows.runs import Run
from spark_connector.rows.schema import arrow_schema, fitting
from spark_connector.workers import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_logger: Final = logging.getLogger("spark_connector")


class RangesPartition(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, task: Task) -> None:
        super().__init__(None)
        self.task = task

    def __repr__(self) -> str:
        return f"RangesPartition({'; '.join(map(str, self.task))})"


def numbers(options: ReadOptions, where: Where, available: Available, edge: Edge) -> Numbers:
    """Return where each partition begins (`edge` EARLIEST) or ends (LATEST).

    Raises:
        DataLossError: the positions belong to a deleted log, and `failOnDataLoss` is true. OffsetError: a
        named partition does not exist, or has no event at or after its time and that must fail.
    """
    if isinstance(where, Positions):
        report_losses(options, replaced(where, available))
        return located(renewed(where, available), available, edge)
    # Checks the named partitions before any request about times.
    located(Positions(edge, where.named), available, edge)
    return {
        stream: _at_times(options, where, stream, state.partitions, edge)
        for stream, state in available.items()
    }


def _at_times(
    options: ReadOptions, times: Times, stream: str, held: Mapping[int, Held], edge: Edge
) -> dict[int, int]:
    """Return the offsets of the partitions of one log at their times.

    Sends one request for each distinct time.
    """
    # Partitions without a time begin or end with the log.
    found = {index: one.earliest if edge is Edge.EARLIEST else one.next for index, one in held.items()}
    wanted: dict[int, list[int]] = {}
    for index in held:
        time_ms = times.named.get(stream, {}).get(index, times.others)
        if time_ms is not None:
            wanted.setdefault(time_ms, []).append(index)
    for time_ms, indexes in wanted.items():
        answer = requests.offsets_at(options.connection, stream, indexes, time_ms)
        for index in indexes:
            # The log may have grown since: all partitions end at the moment of `available`.
            found[index] = min(answer[index], held[index].next)
            if edge is Edge.EARLIEST and options.late_start_fails and found[index] == held[index].next:
                raise OffsetError(
                    f"the partition has no event at or after {time_ms} ms since 1970 UTC",
                    f"log {stream!r}, partition {index}",
                    "Choose an earlier time, or set startingOffsetsByTimestampStrategy to latest",
                )
    return found


def partitions_of(options: ReadOptions, ranges: Iterable[OffsetRange]) -> list[InputPartition]:
    """Return tasks that together read `ranges`."""
    cut = tasks(
        ranges,
        at_least=options.min_partitions,
        at_most=options.max_partitions,
        offsets_max=options.max_partition_offsets,
    )
    return [RangesPartition(task) for task in cut]


def report_losses(options: ReadOptions, losses: Sequence[Loss], *, planned_once: bool = False) -> None:
    """Raise an error for losses, or log them and continue.

    `planned_once`: a task of a batch found the loss.

    Raises:
        DataLossError: `failOnDataLoss` is true.
    """
    if losses and options.fail_on_data_loss:
        raise loss_error(losses, planned_once=planned_once)
    for loss in losses:
        _logger.warning("data_lost %s", loss)


def rows(options: ReadOptions, schema: "StructType", partition: InputPartition) -> "Iterator[pa.RecordBatch]":
    """Yield the rows of one task. If there is nothing to read, Spark passes a partition of another type.

    Raises:
        DataLossError: requested events were removed, and `failOnDataLoss` is true.
        MalformedMessageError: a message cannot be read, and `mode` is FAILFAST.
        NodeError: all retries failed, or the node refused the request.
    """
    # An empty plan: Spark creates a partition of its own.
    if not isinstance(partition, RangesPartition):
        return
    maker = RowMaker(
        fitting(schema, options.columns),
        arrow_schema(schema),
        mode=options.mode,
        rows_max=options.batch_rows,
        bytes_max=options.batch_bytes,
    )
    # Most logs have no gaps: without a filter, the node need not send events only to number them.
    unread = options.filter is None and not maker.needs_events
    for wanted in partition.task:
        present = _present(options, wanted) if unread else None
        if present is not None:
            yield from maker.numbered(wanted.stream, wanted.partition, *present)
            continue
        yield from maker.batches(wanted.stream, wanted.partition, _checked(options, wanted))
    # At the end of a task, everything that later tasks need is loaded.
    settle()
    if maker.malformed > 1:
        _logger.warning("messages_malformed count=%d ranges=%r", maker.malformed, partition)


def _checked(options: ReadOptions, wanted: OffsetRange) -> Iterator[Run]:
    """Yield the events of a range that still exist. Missing events are reported as losses.

    Without a filter every gap is a loss, unless the node says that the offsets of the partition have gaps.
    """
    expected, sparse = wanted.start, options.filter is not None
    try:
        for run in requests.read(options.connection, wanted, options.filter):
            for low, high in [] if sparse else gaps(run, expected):
                # A new request, only now: usually no event is missing.
                held = _held(options, wanted)
                sparse = held is not None and held.gaps
                if sparse:
                    break
                reason = "retention has removed them since this was planned"
                _report_at_reading(options, _lost(wanted, low, high, reason, held))
            # Before `yield`: the consumer of this generator may stop here.
            expected = run.offsets[-1] + 1
            yield run
    # The log may be deleted while a task reads it.
    except StreamNotFoundError as error:
        reason = f"the log was deleted, and perhaps recreated, since this was planned: {error.what}"
        _report_at_reading(options, _lost(wanted, expected, wanted.end, reason))
        return
    if sparse:
        _check_sparse(options, wanted, _held(options, wanted))
    elif expected < wanted.end:
        held = _held(options, wanted)
        if held is not None and held.gaps:
            _check_sparse(options, wanted, held)
        else:
            _report_at_reading(options, _ended(wanted, expected, held))


def _present(options: ReadOptions, wanted: OffsetRange) -> tuple[int, int] | None:
    """Return the part of a range that the log has now. The other events are reported as losses.

    None: which offsets belong to events is not known.
    """
    held = _held(options, wanted)
    if held is not None and held.gaps:
        return None
    start, end = wanted.start, wanted.end
    if held is None:
        reason = "the log was deleted, and perhaps recreated, since this was planned"
        _report_at_reading(options, _lost(wanted, start, end, reason))
        return end, end
    if held.earliest > start:
        start = min(held.earliest, end)
        reason = "retention has removed them since this was planned"
        _report_at_reading(options, _lost(wanted, wanted.start, start, reason, held))
    if held.next < end:
        end = max(held.next, start)
        _report_at_reading(options, _ended(wanted, end, held))
    return start, end


def _check_sparse(options: ReadOptions, wanted: OffsetRange, held: Held | None) -> None:
    """Report events that may be missing from a range whose offsets have gaps, with a filter or by nature.

    A gap is not a proof of a loss. The ends of the partition limit what may be lost.
    """
    # Retention removes whole segments from the beginning: a later part of the range is complete.
    if held is not None and held.earliest > wanted.start:
        high = min(held.earliest, wanted.end)
        reason = "retention has removed them, perhaps before all of them were read"
        _report_at_reading(options, _lost(wanted, wanted.start, high, reason, held))
    if held is not None and held.gaps and held.next < wanted.end:
        _report_at_reading(options, _ended(wanted, max(wanted.start, held.next), held))


def _ended(wanted: OffsetRange, expected: int, held: Held | None) -> Loss:
    """Return the loss of a range whose events ended before its end."""
    overtaken = held is not None and held.earliest >= wanted.end
    reason = (
        "retention has removed them since this was planned"
        if overtaken
        else "the log has no more events in this range"
    )
    return _lost(wanted, expected, wanted.end, reason, held)


def _held(options: ReadOptions, wanted: OffsetRange) -> Held | None:
    """Return the current state of the partition; None if the log or the partition was deleted."""
    state = requests.available(options.connection, [wanted.stream], missing_fail=False).get(wanted.stream)
    return (
        None
        if state is None or state.incarnation != wanted.incarnation
        else state.partitions.get(wanted.partition)
    )


def _report_at_reading(options: ReadOptions, loss: Loss) -> None:
    report_losses(options, [loss], planned_once=options.ending is not None)


def gaps(run: Run, expected: int) -> list[tuple[int, int]]:
    """Return the offsets that are missing before and within a run, as [low, high)."""
    offsets = run.offsets
    # Hot path: without gaps, nothing is looked at one by one.
    if offsets[0] == expected and offsets[-1] - offsets[0] == len(offsets) - 1:
        return []
    found = []
    for number in offsets:
        if number != expected:
            found.append((expected, number))
        expected = number + 1
    return found


def _lost(wanted: OffsetRange, low: int, high: int, reason: str, held: Held | None = None) -> Loss:
    return Loss(
        wanted.stream,
        wanted.partition,
        (wanted.start, wanted.end),
        held,
        high - low,
        f"offsets {low} to {high}: {reason}",
    )
