"""[io] `spark.readStream`: micro-batches of offset ranges.

Each event is read exactly once, because Spark's checkpoint contains the ends of the micro-batches.

Spark creates one reader for each run of a query, in a separate process, and pickles another one for the
tasks. So a reader does not open connections before Spark calls it. These calls were measured with PySpark
4.3:

- Spark calls `initialOffset` twice in the first batch, and again after a crash in that batch. So the end of a
  batch also contains its beginning (offsets.py), and the first batch exists even if it reads nothing: after
  it, the checkpoint contains the start of the query.
- Spark calls `latestOffset` and `reportLatestOffset` ninety times a second when idle. So the first one waits
  (watching.py), and the second one does not send a request.
- Spark calls `commit` at the start of the next batch, and not after the last batch, so nothing depends on it.
  Spark never calls `stop`.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from spark_connector.errors import StreamNotFoundError
from spark_connector.node import requests
from spark_connector.options.settings import read_options
from spark_connector.planning.admission import Limits, advance, held_back, lags
from spark_connector.planning.holdings import Available
from spark_connector.planning.offsets import Edge, Offsets, StreamOffsets
from spark_connector.planning.ranges import beginning, plan
from spark_connector.planning.watching import Watch
from spark_connector.reading import numbers, partitions_of, report_losses, rows
from spark_connector.reporting import shortly, shortly_each
from spark_connector.rows.schema import fitting

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_logger: Final = logging.getLogger("spark_connector")
_ROWS_MAX: Final = (1 << 63) - 1


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the events of one query, batch after batch."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = read_options(options, streaming=True)
        self._schema = schema
        fitting(schema, self._options.columns)
        self._limits = Limits(self._options.max_offsets, self._options.max_bytes)
        self._initial: Offsets | None = None
        self._frozen: Available | None = None
        self._waiting_since: float | None = None
        self._made: Watch | None = None
        self._missed: set[str] = set()
        self._filter_checked = False

    @property
    def _watch(self) -> Watch:
        if self._made is None:
            self._made = Watch(self._available, self._options.poll_ms, time.monotonic, time.sleep)
        return self._made

    @shortly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Limit this run to the events that the logs contain now."""
        self._frozen = self._watch.fresh()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Report to Spark whether limits are set. `Trigger.Once` ignores them.

        `latestOffset` applies the limits, because Spark's read limit has only one number.
        """
        if self._limits == Limits() and self._options.min_offsets is None:
            return ReadAllAvailable()
        return ReadMaxRows(self._limits.offsets or _ROWS_MAX)

    @shortly
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where the query begins. All calls in one run return the same value."""
        if self._initial is None:
            options = self._options
            available = self._frozen or self._watch.fresh()
            missing = [stream for stream in options.streams if stream not in available]
            if missing:
                raise requests.not_found(options.connection, missing[0])
            self._initial = beginning(numbers(options, options.starting, available, Edge.EARLIEST), available)
        return self._initial.json()

    @shortly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch, or `start` itself if nothing is new within `pollInterval`."""
        offsets = Offsets.of(start)
        if self._frozen is not None:
            end: Offsets | None = advance(
                offsets, self._frozen, Limits() if isinstance(limit, ReadAllAvailable) else self._limits
            )
        else:
            end = self._watch.until(
                lambda available: self._end(offsets, available, unlimited=isinstance(limit, ReadAllAvailable))
            )
        if end is None or end is offsets:
            return start
        # The delay of `minOffsetsPerTrigger` begins again after each batch.
        self._waiting_since = time.monotonic()
        return end.json()

    @shortly
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ends of the logs at the latest request. Spark's progress computes the lag from them."""
        seen = self._watch.seen
        if seen is None:
            return None
        streams = {
            name: StreamOffsets(
                state.incarnation, {index: held.next for index, held in state.partitions.items()}
            )
            for name, state in seen.items()
        }
        return Offsets(streams).json()

    @shortly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch. The same batch has the same tasks, even after a restart."""
        options = self._options
        since, until = Offsets.of(start), Offsets.of(end)
        available = requests.available(options.connection, sorted(until.streams), missing_fail=False)
        planned = plan(since, until, available)
        report_losses(options, planned.losses)
        if options.filter is not None and planned.ranges and not self._filter_checked:
            requests.check_filter(options.connection, planned.ranges[0].stream, options.filter)
            self._filter_checked = True
        return partitions_of(options, planned.ranges)

    @shortly_each
    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        """Yield the rows of one task."""
        return rows(self._options, self._schema, partition)

    def _available(self) -> Available:
        """Return the state of the logs.

        A missing log fails the query, or is logged once and omitted until it exists again.
        """
        found = requests.available(self._options.connection, self._options.streams, missing_fail=False)
        for stream in self._options.streams:
            if stream in found:
                self._missed.discard(stream)
            elif self._options.fail_on_data_loss:
                raise StreamNotFoundError(
                    "the log does not exist",
                    f"log {stream!r}, node {self._options.connection}",
                    "If it was deleted and the query shall read the next log with this name, set"
                    " failOnDataLoss to false",
                )
            elif stream not in self._missed:
                self._missed.add(stream)
                node = self._options.connection
                _logger.warning(
                    "stream_missing log=%r node=%s: reading continues when the log exists", stream, node
                )
        return found

    def _end(self, start: Offsets, available: Available, *, unlimited: bool) -> Offsets | None:
        """Return the end of the next batch, or None if nothing is to be read yet."""
        options = self._options
        if unlimited:
            end = advance(start, available, Limits())
        else:
            total = sum(lag.count for lag in lags(start, available))
            now = time.monotonic()
            if self._waiting_since is None:
                self._waiting_since = now
            if held_back(
                total, options.min_offsets, int((now - self._waiting_since) * 1000), options.max_delay_ms
            ):
                end = advance(start, available, self._limits, hold=True)
            else:
                end = advance(start, available, self._limits)
        return None if end is start else end
