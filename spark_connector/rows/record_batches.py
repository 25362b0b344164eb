"""Converts runs of messages to Arrow record batches.

Pure, except for Arrow and log lines about unreadable messages.

Only the sections that the columns need are read. Arrow reads messages of the usual forms without a step of
Python for each row (section_columns.py). Of other messages, and for CloudEvents, each distinct section is
decoded once for each batch. Offsets, times and constants do not become Python objects. `mode` decides whether
a message that cannot be read is logged with its log, partition and offset, or raised as an error.
"""

import logging
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from amqp_streams.client.raw import APPLICATION_PROPERTIES, PROPERTIES, WireError
from spark_connector.errors import MalformedMessageError
from spark_connector.rows.columns import Chosen
from spark_connector.rows.event_columns import ATTRIBUTES, NAMES, Events, events_of
from spark_connector.rows.map_columns import keys_in, maps_in
from spark_connector.rows.message_parts import BODY, Memory, Parts, take_apart
from spark_connector.rows.runs import Run, sized
from spark_connector.rows.section_columns import MESSAGE_ANNOTATIONS, Found, sections_of
from spark_connector.rows.section_texts import FIELDS, fields_of, key_of, pairs_at, pairs_of
from spark_connector.rows.slices import Slices
from spark_connector.rows.values import EARLIEST_US, LATEST_US

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
_OF_PLACE: Final = frozenset({"stream", "partition", "offset", "error"})
"""Columns that need nothing of an event but its place in the log."""
_TEXT: Final = pa.string()
_MAP: Final = pa.map_(_TEXT, _TEXT)
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

    @property
    def needs_events(self) -> bool:
        """Whether a column needs the events themselves: others have the same value for any event."""
        return not _OF_PLACE.issuperset(self._columns.names)

    def numbered(self, stream: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield record batches for the events from offset `start` to before `end`, without the events.

        For columns that do not need them.
        """
        for low in range(start, end, self._rows_max):
            offsets = array("Q", range(low, min(low + self._rows_max, end)))
            yield self._batch(stream, partition, Run(offsets, array("q"), pa.array([], pa.binary())))

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
        needed = bool(self._wanted) or self._kinds
        columns = sections_of(run.messages) if needed and not self._with_events else None
        messages = run.messages.to_pylist() if needed and columns is None else ()
        parts = take_apart(messages, self._wanted, kinds=self._kinds)
        events = events_of(parts) if self._with_events else None
        found = _Read(run, parts, events, columns)
        arrays: dict[str, pa.Array] = {}
        for column, kind in self._columns.columns:
            # Last: the other columns find the faults.
            if column.name != "error":
                arrays[column.name] = self._array(column.name, kind, (stream, partition), found)
        if parts.faults:
            self._report(parts.faults, stream, partition, run)
        if "error" in self._columns.names:
            arrays["error"] = pa.array(
                [parts.faults.get(row) for row in range(len(run.offsets))], pa.string()
            )
        if not arrays:
            return _without_columns(len(run.offsets))
        batch = pa.RecordBatch.from_arrays(
            [arrays[name] for name in self._columns.names], schema=self._schema
        )
        # After all columns: every one of them may have found a fault.
        if parts.faults and self._mode == "DROPMALFORMED":
            return batch.filter(pa.array([row not in parts.faults for row in range(batch.num_rows)]))
        return batch

    def _array(self, name: str, kind: str, source: tuple[str, int], found: "_Read") -> pa.Array:
        made = self._constant(name, source, found.run)
        if made is None and found.events is not None and name in NAMES:
            made = self._of_event(name, kind, found.parts, found.events)
        if made is None and name in FIELDS:
            made = self._of_field(name, found)
        return self._of_message(name, kind, found) if made is None else made

    def _constant(self, name: str, source: tuple[str, int], run: Run) -> pa.Array | None:
        """Return a column whose values are not in the message; None for other columns."""
        match name:
            case "stream":
                return pa.repeat(source[0], len(run.offsets))
            case "partition":
                return pa.repeat(pa.scalar(source[1], pa.int32()), len(run.offsets))
            case "offset":
                return _numbers(run.offsets)
            case "enqueued_time":
                return pc.multiply(_numbers(run.timestamps_ms), 1000).cast(_UTC_MICROSECONDS)
            case "message":
                return run.messages
        return None

    def _of_message(self, name: str, kind: str, found: "_Read") -> pa.Array:
        match name:
            case "body_type":
                return (
                    pa.array(found.parts.kinds, _TEXT)
                    if found.columns is None
                    else pa.repeat("data", len(found.run.offsets))
                )
            case "key":
                keys = found.section(MESSAGE_ANNOTATIONS, keys_in)
                return _expanded(found, MESSAGE_ANNOTATIONS, self._keys, _texts) if keys is None else keys
            case "annotations":
                return _expanded(found, MESSAGE_ANNOTATIONS, self._pairs, _maps)
            case "properties":
                maps = found.section(APPLICATION_PROPERTIES, lambda section: maps_in(section, _MAP))
                return _expanded(found, APPLICATION_PROPERTIES, self._pairs, _maps) if maps is None else maps
        assert name == "body", name
        if found.columns is None:
            return _octets(pa.array(found.parts.bodies, pa.binary()), kind, found.parts.faults)
        return _octets(found.columns.bodies.column(), kind, found.parts.faults)

    def _of_field(self, name: str, found: "_Read") -> pa.Array:
        read = FIELDS[name]
        return _expanded(
            found,
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
        return _octets(pa.array(events.data, pa.binary()), kind, parts.faults)

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


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read of the messages of a run. `columns`: None if they were read one by one, into `parts`."""

    run: Run
    parts: Parts
    events: Events | None
    columns: Found | None

    def section(self, code: int, read: Callable[[Slices], pa.Array | None]) -> pa.Array | None:
        """Return what `read` makes of a section; None if it cannot, or messages were read one by one."""
        section = None if self.columns is None else self.columns.sections.get(code)
        return None if section is None else read(section)

    def distinct(self, code: int) -> tuple[list[bytes], pa.Int32Array]:
        """Return the distinct sections, and for each row the index of its section."""
        if self.columns is None:
            return list(self.parts.tables[code]), pa.array(self.parts.codes[code], pa.int32())
        section = self.columns.sections.get(code)
        if section is None:
            return [b""], pa.repeat(pa.scalar(0, pa.int32()), len(self.run.offsets))
        encoded = section.column().dictionary_encode()
        return encoded.dictionary.to_pylist(), encoded.indices


def _without_columns(rows: int) -> pa.RecordBatch:
    """Return a batch that has only a number of rows: Spark counts them."""
    empty = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
    return pa.RecordBatch.from_struct_array(empty)


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
        found = pa.array(texts, _TEXT).cast(_UTC_MICROSECONDS)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return _times(events.times(faults))
    # The zone of a text can move its time out of the years that it names.
    first, last = pc.min_max(found.cast(pa.int64())).as_py().values()
    is_valid = first is None or (first >= EARLIEST_US and last <= LATEST_US)
    return found if is_valid else _times(events.times(faults))


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
    source: _Read, code: int, read: Callable[[bytes], object], made: Callable[[Any], pa.Array]
) -> pa.Array:
    """Return a column of a section: each distinct section is decoded once, then expanded to its rows."""
    table, codes = source.distinct(code)
    if len(table) == 1 and not table[0]:
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
        for row, index in enumerate(codes.to_pylist()):
            if index in broken:
                source.parts.faults.setdefault(row, broken[index])
    distinct = made(found)
    # Sections are numbered in the order of rows: with as many sections as rows, row n has section n.
    return distinct if len(table) == len(codes) else distinct.take(codes)


def _octets(bodies: pa.BinaryArray, kind: str, faults: dict[int, str]) -> pa.Array:
    """Return bodies as bytes, or as text if the column is a string."""
    if kind == "binary":
        return bodies
    try:
        # Arrow converts and checks all bodies at once.
        return bodies.cast(pa.string())
    except pa.ArrowInvalid:
        texts: list[str | None] = []
        for row, body in enumerate(bodies.to_pylist()):
            try:
                texts.append(None if body is None else body.decode())
            except UnicodeDecodeError:
                texts.append(None)
                faults.setdefault(row, "the body is not UTF-8, and the column is a string")
        return pa.array(texts, pa.string())
