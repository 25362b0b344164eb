"""The highest sequences of idempotent producers in a partition, as batches, journal and indexes store them.

Pure. Laws: a batch's table describes the producers of the batch's own records, so that events and their
sequences are stored together or not at all. Reading batches in record order gives the same table, even if
some batches are read a second time.

A table is a sequence of entries without gaps. All numbers are little-endian. A batch's table follows its
other tables. An entry of a batch::

     0   8  u64    the producer's highest sequence in the batch
     8   2  u16    length of the producer's id
    10   2  u16    0, or 1: the producer is forgotten (the sequence is then 0)
    12             the id in UTF-8

An index's table holds every producer that is known at the end of the index. An entry of an index::

     0   8  u64    the producer's highest sequence
     8   8  i64    when it was stored, in ms since 1970
    16   2  u16    length of the producer's id
    18             the id in UTF-8
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import Final

from amqp_streams.storage.ports import PRODUCER_ID_BYTES_MAX, Mark, Numbers, Reached

TABLE_BYTES_MAX: Final = 64 << 20
"""Of one table: twice the producers that a partition may have (`limits.producers`), with the longest ids."""

USER_SEPARATOR: Final = "\x1f"
"""Between the user and the name of a producer in its id: see `stored_id`."""

_ENTRY: Final = Struct("<QHH")
_ROW: Final = Struct("<QqH")
_FORGOTTEN: Final = 1
# Bounds what one append adds to its batch: the next expired producers are removed with later appends.
_FORGOTTEN_MAX: Final = 64

Entries = Mapping[str, int | None]
"""By producer, in the order of its last record: the highest sequence, or None if it is forgotten."""
Table = dict[str, Reached]
"""By producer; the producer with the latest record is last."""


def marks_of(base: int, numbers: Numbers) -> list[Mark]:
    """The marks of an append whose first record is `base`."""
    return [
        *(Mark(base, gone, None) for gone in numbers.forgotten),
        Mark(base, numbers.producer, numbers.sequences),
    ]


def marks_again(base: int, entries: Entries) -> list[Mark]:
    """The marks for records that are written again, from a batch's table."""
    return [
        Mark(base, producer, None if sequence is None else array("Q", [sequence]))
        for producer, sequence in entries.items()
    ]


def bytes_needed(numbers: Numbers) -> int:
    """The most bytes that these numbers take in a batch's table."""
    return sum([_ENTRY.size + len(producer.encode()) for producer in (numbers.producer, *numbers.forgotten)])


def within(marks: Iterable[Mark], first: int, after: int) -> list[Mark]:
    """The part of the marks for records first..after."""
    kept: list[Mark] = []
    for mark in marks:
        if mark.sequences is None:
            if first <= mark.base < after:
                kept.append(mark)
        elif sequences := mark.sequences[max(0, first - mark.base) : max(0, after - mark.base)]:
            kept.append(Mark(max(first, mark.base), mark.producer, sequences))
    return kept


def entries_of(marks: Iterable[Mark]) -> dict[str, int | None]:
    """The table entries that these marks give."""
    entries: dict[str, int | None] = {}
    for mark in marks:
        # Removed and added: the order of a table is that of the last records.
        entries.pop(mark.producer, None)
        entries[mark.producer] = mark.sequences[-1] if mark.sequences else None
    return entries


def apply(table: Table, entries: Entries, at_ms: int) -> None:
    """Update `table` with the entries of a batch.

    The latest entry counts, not the highest sequence: a producer that was forgotten may begin again.
    """
    for producer, sequence in entries.items():
        table.pop(producer, None)
        if sequence is not None:
            table[producer] = Reached(sequence, at_ms)


def victims(
    table: Mapping[str, Reached],
    *,
    idle: Callable[[str], bool],
    coming: int,
    limit: int,
    expired_before_ms: int,
) -> Sequence[str] | None:
    """Choose the producers to remove, so that `coming` new producers fit. None: too many are in use.

    `table` has the producers in the order of their last record. Chosen are `idle` producers without a record
    since `expired_before_ms`. If these are too few, other `idle` producers follow, oldest record first.
    """
    gone: list[str] = []
    for producer, reached in table.items():
        needed = len(table) + coming - len(gone) > limit
        # The oldest come first, so no later producer has expired.
        if not needed and (reached.at_ms >= expired_before_ms or len(gone) >= _FORGOTTEN_MAX):
            break
        if idle(producer):
            gone.append(producer)
    return gone if len(table) + coming - len(gone) <= limit else None


def encode_entries(entries: Entries) -> bytes:
    """Encode a batch's table."""
    parts: list[bytes] = []
    for producer, sequence in entries.items():
        name = producer.encode()
        assert 0 < len(name) <= PRODUCER_ID_BYTES_MAX, "ids are checked when a link is attached"
        parts += (_ENTRY.pack(sequence or 0, len(name), _FORGOTTEN if sequence is None else 0), name)
    return b"".join(parts)


def decode_entries(data: bytes) -> dict[str, int | None]:
    """Decode a batch's table, whose CRC the caller has checked."""
    entries: dict[str, int | None] = {}
    at = 0
    while at < len(data):
        sequence, size, flags = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size + size
        entries[data[at - size : at].decode()] = None if flags & _FORGOTTEN else sequence
    assert at == len(data), "the CRC matched, so the lengths add up"
    return entries


def encode_table(table: Table) -> bytes:
    """Encode an index's table."""
    parts: list[bytes] = []
    for producer, reached in table.items():
        name = producer.encode()
        parts += (_ROW.pack(reached.sequence, reached.at_ms, len(name)), name)
    return b"".join(parts)


def decode_table(data: bytes) -> Table:
    """Decode an index's table, whose CRC the caller has checked."""
    table: Table = {}
    at = 0
    while at < len(data):
        sequence, at_ms, size = _ROW.unpack_from(data, at)
        at += _ROW.size + size
        table[data[at - size : at].decode()] = Reached(sequence, at_ms)
    assert at == len(data), "the CRC matched, so the lengths add up"
    return table
