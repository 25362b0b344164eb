"""Converts runs of messages to Arrow record batches.

Pure, except for Arrow and log lines about unreadable messages.

Only the sections that the columns need are read, and each distinct section is decoded once for each batch.
Offsets, times and constants do not become Python objects. `mode` decides whether a message that cannot be
read is logged with its log, partition and offset, or raised as an error.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from amqp_streams.client.raw import APPLICATION_PROPERTIES, PROPERTIES, WireError
from spark_connector.errors import MalformedMessageError
from spark_connector.rows.columns import Chosen
from spark_connector.rows.event_columns import ATTRIBUTES, NAMES, Events, events_of
from spark_connector.rows.message_parts import BODY, MESSAGE_ANNOTATIONS, Memory, Parts, take_apart
from spark_connector.rows.runs import Run, sized
from spark_connector.rows.section_texts import FIELDS, fields_of, key_of, pairs_at, pairs_of

_logger: Final = logging.getLogger("spark_connector")
_NEEDS: Final[dict[str, tuple[int, ...]]] = {
    "body": (BODY,),
    "key": (MESSAGE_ANNOTATIONS,),
    "annotations": (MESSAGE_ANNOTATIONS,),
    "properties": (APPLICATION_PROPERTIES,),
    **dict.fromkeys(FIELDS, (PROPERTIES,)),
}
_EVENT: Final = (PROPERTIES, APPLICATION_PROPERTIES, BODY)
_UTC_MICROSECONDS: Final = pa.timestamp("us", tz="UTC")
_TEXT: Final = pa.string()
_MAP: Final = pa.map_(_TEXT, _TEXT)
_Found = tuple[Run, Parts, Events | None]
_REMEDY: Final = (
    "Set mode to PERMISSIVE (columns that cannot be read are null; a column `error` says why) or to"
    " DROPMALFORMED, or remove the columns that need this part of the message"
)


class RowMaker:
    """Makes the rows of one task. `malformed`: how many messages could not be read."""

    def __init__(
        self, columns: Chosen, schema: pa.Schema, *, mode: str, rows_max: int, bytes_max: int
    ) -> None:
        self._columns: Final = columns
        self._schema: Final = schema
        self._mode: Final = mode
        self._rows_max: Final = rows_max
        self._bytes_max: Final = bytes_max
        needs = {column.name: _needs(column.name, events=columns.events) for column, _ in columns.columns}
        self._wanted: Final = frozenset(code for codes in needs.values() for code in codes)
        self._kinds: Final = "body_type" in needs
        self._with_events: Final = columns.events and any(name in NAMES for name in needs)
        self._keys: Final = Memory(key_of)
        self._pairs: Final = Memory(pairs_of)
        self._fields: Final = Memory(fields_of)
        self.malformed = 0

    def batches(self, stream: str, partition: int, runs: Iterable[Run]) -> Iterator[pa.RecordBatch]:
        """Yield record batches within the limits.

        Raises:
            MalformedMessageError: a message cannot be read, and `mode` is FAILFAST.
        """
        for run in sized(runs, self._rows_max, self._bytes_max):
            yield from self._cut(self._batch(stream, partition, run))

    def _cut(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Split a batch that is larger than the limit.

        Columns can be larger than the messages they come from.
        """
        # One row cannot be split, however large it is.
        if batch.nbytes <= self._bytes_max or batch.num_rows <= 1:
            yield batch
            return
        # Halves, because the size of a row is not known without measuring it.
        half = batch.num_rows // 2
        yield from self._cut(batch.slice(0, half))
        yield from self._cut(batch.slice(half))

    def _batch(self, stream: str, partition: int, run: Run) -> pa.RecordBatch:
        # A query that counts rows needs no message.
        messages = run.messages if self._wanted or self._kinds else ()
        parts = take_apart(messages, self._wanted, kinds=self._kinds)
        events = events_of(parts) if self._with_events else None
        arrays: dict[str, pa.Array] = {}
        for column, kind in self._columns.columns:
            # Last: the other columns find the faults.
            if column.name != "error":
                arrays[column.name] = self._array(
                    column.name, kind, (stream, partition), (run, parts, events)
                )
        if parts.faults:
            self._report(parts.faults, stream, partition, run)
        if "error" in self._columns.names:
            arrays["error"] = pa.array(
                [parts.faults.get(row) for row in range(len(run.messages))], pa.string()
            )
        batch = pa.RecordBatch.from_arrays(
            [arrays[name] for name in self._columns.names], schema=self._schema
        )
        # After all columns: every one of them may have found a fault.
        if parts.faults and self._mode == "DROPMALFORMED":
            return batch.filter(pa.array([row not in parts.faults for row in range(batch.num_rows)]))
        return batch

    def _array(self, name: str, kind: str, source: tuple[str, int], found: _Found) -> pa.Array:
        run, parts, events = found
        made = self._constant(name, source, run)
        if made is None and events is not None and name in NAMES:
            made = self._of_event(name, kind, parts, events)
        if made is None and name in FIELDS:
            made = self._of_field(name, parts)
        return self._of_message(name, kind, parts) if made is None else made

    def _constant(self, name: str, source: tuple[str, int], run: Run) -> pa.Array | None:
        """Return a column whose values are not in the message; None for other columns."""
        match name:
            case "stream":
                return pa.repeat(source[0], len(run.messages))
            case "partition":
                return pa.repeat(pa.scalar(source[1], pa.int32()), len(run.messages))
            case "offset":
                return _numbers(run.offsets)
            case "enqueued_time":
                return pc.multiply(_numbers(run.timestamps_ms), 1000).cast(_UTC_MICROSECONDS)
            case "message":
                return pa.array(run.messages, pa.binary())
        return None

    def _of_message(self, name: str, kind: str, parts: Parts) -> pa.Array:
        match name:
            case "body_type":
                return pa.array(parts.kinds, _TEXT)
            case "key":
                return _expanded(parts, MESSAGE_ANNOTATIONS, self._keys, _texts)
            case "annotations":
                return _expanded(parts, MESSAGE_ANNOTATIONS, self._pairs, _maps)
            case "properties":
                return _expanded(parts, APPLICATION_PROPERTIES, self._pairs, _maps)
        assert name == "body", name
        return _octets(parts, kind)

    def _of_field(self, name: str, parts: Parts) -> pa.Array:
        read = FIELDS[name]
        return _expanded(
            parts,
            PROPERTIES,
            lambda section: read(cast("list[object]", self._fields(section))),
            _times if name == "creation_time" else _texts,
        )

    def _of_event(self, name: str, kind: str, parts: Parts, events: Events) -> pa.Array:
        if name in ATTRIBUTES:
            return _texts(events.texts(name))
        if name == "time":
            return _moments(events, parts.faults)
        if name == "extensions":
            return _maps(events.extensions())
        # In structured mode, the data is inside the body.
        parts.bodies = events.data
        return _octets(parts, kind)

    def _report(self, faults: dict[int, str], stream: str, partition: int, run: Run) -> None:
        first = min(faults)
        where = f"log {stream!r}, partition {partition}, offset {run.offsets[first]}"
        if self._mode == "FAILFAST":
            raise MalformedMessageError(f"a stored message cannot be read: {faults[first]}", where, _REMEDY)
        # One line for each task: a log with many such messages must not fill Spark's log.
        if not self.malformed:
            what = (
                "row is left out" if self._mode == "DROPMALFORMED" else "columns that cannot be read are null"
            )
            _logger.warning(
                "message_malformed %s reason=%r: %s; the end of the task logs the number of such messages",
                where,
                faults[first],
                what,
            )
        self.malformed += len(faults)


def _texts(found: Any) -> pa.Array:
    return pa.array(found, _TEXT)


def _times(found: Any) -> pa.Array:
    return pa.array(found, _UTC_MICROSECONDS)


def _moments(events: Events, faults: dict[int, str]) -> pa.Array:
    """Return times from texts.

    Arrow converts all texts at once. If one text is not valid for Arrow, they are converted one by one.
    """
    texts = [None if one is None else one.get("time") for one in events.attributes]
    try:
        return pa.array(texts, _TEXT).cast(_UTC_MICROSECONDS)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return _times(events.times(faults))


def _maps(found: Any) -> pa.Array:
    starts, keys, values = pairs_at(found)
    return pa.MapArray.from_arrays(
        pa.array(starts, pa.int32()), pa.array(keys, _TEXT), pa.array(values, _TEXT), type=_MAP
    )


def _needs(name: str, *, events: bool) -> tuple[int, ...]:
    if events and name in NAMES:
        return _EVENT
    return _NEEDS.get(name, ())


def _numbers(numbers: "memoryview | object") -> pa.Array:
    """Return an array of 64-bit integers that shares the memory of `numbers`."""
    buffer = pa.py_buffer(numbers)
    return pa.Array.from_buffers(pa.int64(), buffer.size // 8, [None, buffer])


def _expanded(
    parts: Parts, code: int, read: Callable[[bytes], object], made: Callable[[Any], pa.Array]
) -> pa.Array:
    """Return a column of a section: each distinct section is decoded once, then expanded to its rows."""
    table, codes = parts.tables[code], parts.codes[code]
    if len(table) == 1 and b"" in table:
        return pa.nulls(len(codes), made([None]).type)
    if len(table) == len(codes) and isinstance(read, Memory):
        read = read.read  # all sections differ: they would only displace useful entries of the cache
    found: list[object] = []
    broken: dict[int, str] = {}
    for index, section in enumerate(table):
        try:
            found.append(read(section))
        except (WireError, ValueError, IndexError) as error:
            found.append(None)
            broken[index] = f"the bytes are not a valid AMQP message: {error}"
    if broken:
        for row, index in enumerate(codes):
            if index in broken:
                parts.faults.setdefault(row, broken[index])
    distinct = made(found)
    # Sections are numbered in the order of rows: with as many sections as rows, row n has section n.
    return distinct if len(table) == len(codes) else distinct.take(pa.array(codes, pa.int32()))


def _octets(parts: Parts, kind: str) -> pa.Array:
    """Return bodies as bytes, or as text if the column is a string."""
    if kind == "binary":
        return pa.array(parts.bodies, pa.binary())
    try:
        # Arrow converts and checks all bodies at once.
        return pa.array(parts.bodies, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        texts: list[str | None] = []
        for row, body in enumerate(parts.bodies):
            try:
                texts.append(None if body is None else body.decode())
            except UnicodeDecodeError:
                texts.append(None)
                parts.faults.setdefault(row, "the body is not UTF-8, and the column is a string")
        return pa.array(texts, pa.string())
