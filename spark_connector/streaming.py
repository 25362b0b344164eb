"""[io] `spark.readStream`: micro-batches of offset ranges, exactly once by Spark's checkpoint of their ends.

Spark makes one reader for a run of a query, in a process of its own, and pickles another for the tasks: nothing is opened before it is
asked. What it may ask, and when, was measured with PySpark 4.3:

- `initialOffset` twice in the first batch, and again after a crash in it; that is why ends carry where their batch begins (offsets.py), and
  why there is a first batch even if there is nothing to read: from then on the checkpoint knows where the query began.
- `latestOffset` ninety times a second when idle; so it waits (watching.py). `reportLatestOffset` as often; it asks nobody.
- `commit` at the start of the next batch, and never after the last: nothing depends on it. `stop` never.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from spark_connector.errors import StreamNotFoundError
from spark_connector.node import requests
from spark_connector.options.settings import read_options
from spark_connector.planning.admission import Limits, advance, held_back, lags
from spark_connector.planning.holdings import Available
from spark_connector.planning.offsets import Edge, Offsets, StreamOffsets
from spark_connector.planning.ranges import beginning, plan
from spark_connector.planning.watching import Watch
from spark_connector.reading import face, numbers, partitions_of, rows
from spark_connector.rows.schema import fitting

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_logger: Final = logging.getLogger("spark_connector")
_ROWS_MAX: Final = (1 << 63) - 1


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes."""

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

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """What is there now is all that this run reads."""
        self._frozen = self._watch.fresh()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Whether there are limits: they are applied in `latestOffset`, as Spark knows no more than one. `Trigger.Once` ignores them."""
        if self._limits == Limits() and self._options.min_offsets is None:
            return ReadAllAvailable()
        return ReadMaxRows(self._limits.offsets or _ROWS_MAX)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where the query begins; the same each time in one run."""
        if self._initial is None:
            options = self._options
            available = self._frozen or self._watch.fresh()
            missing = [stream for stream in options.streams if stream not in available]
            if missing:
                raise requests.not_found(options.connection, missing[0])
            self._initial = beginning(numbers(options, options.starting, available, Edge.EARLIEST), available)
        return self._initial.json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; `start` itself, some time later, when there is none."""
        offsets = Offsets.of(start)
        if self._frozen is not None:
            end: Offsets | None = advance(offsets, self._frozen, Limits() if isinstance(limit, ReadAllAvailable) else self._limits)
        else:
            end = self._watch.until(lambda available: self._end(offsets, available, unlimited=isinstance(limit, ReadAllAvailable)))
        if end is None or end is offsets:
            return start
        self._waiting_since = time.monotonic()
        return end.json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the logs as they were last seen: progress shows the lag by it."""
        seen = self._watch.seen
        if seen is None:
            return None
        streams = {
            name: StreamOffsets(state.incarnation, {index: held.next for index, held in state.partitions.items()})
            for name, state in seen.items()
        }
        return Offsets(streams).json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch: the same for the same batch, also after a restart."""
        options = self._options
        since, until = Offsets.of(start), Offsets.of(end)
        available = requests.available(options.connection, sorted(until.streams), missing_fail=False)
        planned = plan(since, until, available)
        face(options, planned.losses)
        if options.filter is not None and planned.ranges and not self._filter_checked:
            requests.check_filter(options.connection, planned.ranges[0].stream, options.filter)
            self._filter_checked = True
        return partitions_of(options, planned.ranges)

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        """The rows of one task."""
        return rows(self._options, self._schema, partition)

    def _available(self) -> Available:
        """What the logs have. One that is gone fails the query, or is told once and left out until it is back."""
        found = requests.available(self._options.connection, self._options.streams, missing_fail=False)
        for stream in self._options.streams:
            if stream in found:
                self._missed.discard(stream)
            elif self._options.fail_on_data_loss:
                raise StreamNotFoundError(
                    "there is no such log",
                    f"stream {stream!r}, node {self._options.connection}",
                    "If it was deleted, and the query is to go on with what comes under its name, set failOnDataLoss to false",
                )
            elif stream not in self._missed:
                self._missed.add(stream)
                _logger.warning("stream_missing stream=%r node=%s: read on when it is there", stream, self._options.connection)
        return found

    def _end(self, start: Offsets, available: Available, *, unlimited: bool) -> Offsets | None:
        """The end of the next batch; None: there is none yet."""
        options = self._options
        if unlimited:
            end = advance(start, available, Limits())
        else:
            total = sum(lag.count for lag in lags(start, available))
            now = time.monotonic()
            if self._waiting_since is None:
                self._waiting_since = now
            if held_back(total, options.min_offsets, int((now - self._waiting_since) * 1000), options.max_delay_ms):
                end = advance(start, available, self._limits, hold=True)
            else:
                end = advance(start, available, self._limits)
        return None if end is start else end
