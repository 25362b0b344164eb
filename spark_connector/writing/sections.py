"""Encodes Arrow columns as sections of AMQP messages, one piece of bytes for each row. Pure.

The message of a row is the concatenation of its pieces, in the order annotations, properties, application
properties, body. A null has no piece (no field, no entry). Arrow makes the pieces of bodies and keys without
a step of Python for each row; the other sections take one list comprehension for each column, which is much
faster than a loop over rows.

Spec: AMQP 1.0 core 3.2, types 1.6.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from struct import Struct
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from amqp_streams.client.raw import Symbol, encode, key_section
from event_formats.memory import Memory
from spark_connector.writing.packing import as_binary, lengths

Pieces = list[bytes]

_SHORT_MAX: Final = 255
_LENGTHS: Final = tuple(bytes((length,)) for length in range(256))
_NULL: Final = b"\x40"
_DATA: Final = (b"\x00\x53\x75\xa0", b"\x00\x53\x75\xb0")
_TEXT: Final = (b"\x00\x53\x77\xa1", b"\x00\x53\x77\xb1")
"""What precedes the size of a section: a size of one byte, of four bytes."""
_NO_BODY: Final = b"\x00\x53\x77\x40"
_STRINGS: Final = tuple(b"\xa1" + length for length in _LENGTHS)
_BINARIES: Final = tuple(b"\xa0" + length for length in _LENGTHS)

_names: Final[Memory[tuple[bytes, bytes], bytes]] = Memory(1024, 255, lambda key: len(key[1]))


def texts(column: pa.Array) -> list[bytes | None]:
    """Return the UTF-8 of a column of strings, or the bytes of a binary column."""
    found: list[bytes | None] = _octets(column).to_pylist()
    return found


def body_sections(column: pa.Array) -> pa.BinaryArray:
    """Return the bodies.

    Binary: a data section. String: an amqp-value with a string. Null: an amqp-value of null.
    """
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return _sections(column, _TEXT if is_text else _DATA)


def data_sections(column: pa.Array) -> pa.BinaryArray:
    """Return data sections with the bytes, or the UTF-8 of the text.

    Null: an amqp-value of null, for an event without data.
    """
    return _sections(column, _DATA)


def key_sections(keys: pa.Array) -> pa.BinaryArray:
    """Return message annotations with the group key; empty without a key.

    Keys repeat, so each key is encoded once in a batch.
    """
    found = keys.cast(pa.string()).dictionary_encode()
    pieces = pa.array([key_section(key) for key in found.dictionary.to_pylist()], pa.binary())
    return pieces.take(found.indices).fill_null(b"")


def joined(sections: Sequence[pa.BinaryArray | Pieces]) -> pa.BinaryArray:
    """Return the messages of the rows: their sections, one after the other."""
    columns = [one if isinstance(one, pa.Array) else pa.array(one, pa.binary()) for one in sections]
    nothing = pa.scalar(b"", pa.binary())
    return columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, nothing)


def properties_sections(rows: int, columns: Mapping[str, pa.Array]) -> Pieces:
    """Return the properties sections with the columns of PROPERTY_COLUMNS that are not null.

    Empty if all are null.
    """
    fields = [
        [_NULL] * rows if (column := columns.get(name)) is None else write(column)
        for name, write in _PROPERTIES
    ]
    # The usual case: few different content types, so each section is made once.
    if columns.keys() & PROPERTY_COLUMNS == {"content_type"}:
        # The content type is the last but one of `_PROPERTIES`.
        types = fields[-2]
        known = {one: _properties([_NULL, _NULL, _NULL, one, _NULL]) for one in set(types)}
        return [known[one] for one in types]
    return list(map(_properties, zip(*fields, strict=True)))


def application_properties(entries: Sequence[tuple[bytes, int]]) -> Pieces:
    """Return the application properties.

    `entries`: for each row, its encoded pairs and their number. A row without pairs has no section.
    """
    pieces = []
    for inside, count in entries:
        size, items = len(inside), 2 * count
        if not count:
            pieces.append(b"")
        elif size < _SHORT_MAX and items <= _SHORT_MAX:
            pieces.append(b"\x00\x53\x74\xc1" + _LENGTHS[size + 1] + _LENGTHS[items] + inside)
        else:
            pieces.append(b"\x00\x53\x74\xd1" + (size + 4).to_bytes(4) + items.to_bytes(4) + inside)
    return pieces


def entries_of(
    column: pa.Array, prefix: str = "", check: Callable[[str], object] | None = None
) -> list[tuple[bytes, int]]:
    """Return the entries of a column of maps or structs: for each row, its encoded pairs and their number.

    `prefix`: is added before each name. Null values are omitted. `check`: is called with each name, and
    raises for a name that is not valid.
    """
    if pa.types.is_map(column.type):
        return list(_map_entries(column, prefix, check))
    return list(_struct_entries(column, prefix, check))


def values(column: pa.Array) -> Pieces:
    """Return each value in its encoding of AMQP.

    The types are string, binary, boolean, int (up to 32 bits), long, float, double and timestamp.

    Null: b"".
    """
    kind = column.type
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind):
        return _strings(column, b"")
    if types.is_binary(kind) or types.is_large_binary(kind):
        return _headed(texts(column), _BINARIES, b"\xb0", b"")
    if types.is_boolean(kind):
        return [b"" if value is None else b"\x41" if value else b"\x42" for value in column.to_pylist()]
    if types.is_timestamp(kind):
        # AMQP's timestamps have milliseconds, Spark's have microseconds.
        column = column.cast(pa.timestamp("ms", tz=kind.tz), safe=False).cast(pa.int64())
    pack = _packer(kind)
    return [b"" if value is None else pack(value) for value in column.to_pylist()]


def _packer(kind: pa.DataType) -> Callable[[float], bytes]:
    types = pa.types
    if types.is_timestamp(kind):
        code, layout = b"\x83", Struct(">q")
    elif types.is_int64(kind):
        code, layout = b"\x81", Struct(">q")
    elif types.is_float64(kind):
        code, layout = b"\x82", Struct(">d")
    elif types.is_float32(kind):
        code, layout = b"\x72", Struct(">f")
    else:
        assert types.is_signed_integer(kind), kind
        code, layout = b"\x71", Struct(">i")
    pack = layout.pack
    return lambda value: code + pack(value)


def _octets(column: pa.Array) -> pa.BinaryArray:
    return column.cast(pa.binary())


def _sections(column: pa.Array, heads: tuple[bytes, bytes]) -> pa.BinaryArray:
    """Return sections with the bytes of a column; null: an amqp-value of null."""
    found = _octets(column)
    sizes = lengths(found)
    short, long = (pa.scalar(head, pa.binary()) for head in heads)
    nothing = pa.scalar(b"", pa.binary())
    most, least = (pc.min_max(sizes)[name].as_py() or 0 for name in ("max", "min"))
    pieces: pa.BinaryArray | None = None
    if least <= _SHORT_MAX:
        width = as_binary(sizes.cast(pa.uint8(), safe=False))
        pieces = pc.binary_join_element_wise(short, width, found, nothing)
    if most > _SHORT_MAX:
        wide = pc.binary_join_element_wise(long, as_binary(sizes.cast(pa.uint32())), found, nothing)
        # Both forms are made for all rows of a mixed batch: it is cheaper than to divide the rows.
        pieces = wide if pieces is None else pc.if_else(pc.greater(sizes, _SHORT_MAX), wide, pieces)
    assert pieces is not None, "a size is short or long"
    return pieces.fill_null(_NO_BODY)


def _headed(found: list[bytes | None], heads: tuple[bytes, ...], long: bytes, null: bytes) -> Pieces:
    return [
        null
        if text is None
        else heads[len(text)] + text
        if len(text) <= _SHORT_MAX
        else long + len(text).to_bytes(4) + text
        for text in found
    ]


def _strings(column: pa.Array, null: bytes) -> Pieces:
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return _headed(texts(column), *((_STRINGS, b"\xb1") if is_text else (_BINARIES, b"\xb0")), null)


def _symbols(column: pa.Array) -> Pieces:
    found = column.to_pylist()
    known = {one: _NULL if one is None else encode(Symbol(one)) for one in set(found)}
    return [known[one] for one in found]


def _times(column: pa.Array) -> Pieces:
    return [value or _NULL for value in values(column)]


def _texts_or_null(column: pa.Array) -> Pieces:
    return _strings(column, _NULL)


_PROPERTIES: Final[tuple[tuple[str, Callable[[pa.Array], Pieces]], ...]] = (
    ("message_id", _texts_or_null),
    ("subject", _texts_or_null),
    ("correlation_id", _texts_or_null),
    ("content_type", _symbols),
    ("creation_time", _times),
)
PROPERTY_COLUMNS: Final = frozenset(name for name, _ in _PROPERTIES)
"""Columns that are fields of the properties."""


def _properties(given: Sequence[bytes]) -> bytes:
    """Encode the properties.

    The fields in order are message-id, user-id, to, subject, reply-to, correlation-id, content-type,
    content-encoding, absolute-expiry-time, creation-time.
    """
    message_id, subject, correlation_id, content_type, creation_time = given
    if creation_time != _NULL:
        count, last = 10, content_type + b"\x40\x40" + creation_time
    elif content_type != _NULL:
        count, last = 7, content_type
    else:
        count, last = 6, b""
    if count > 6 or correlation_id != _NULL:
        fields = message_id + b"\x40\x40" + subject + b"\x40" + correlation_id + last
    elif subject != _NULL:
        count, fields = 4, message_id + b"\x40\x40" + subject
    elif message_id != _NULL:
        count, fields = 1, message_id
    else:
        return b""
    if len(fields) < _SHORT_MAX:
        return b"\x00\x53\x73\xc0" + _LENGTHS[len(fields) + 1] + _LENGTHS[count] + fields
    return b"\x00\x53\x73\xd0" + (len(fields) + 4).to_bytes(4) + count.to_bytes(4) + fields


def _map_entries(
    column: pa.Array, prefix: str, check: Callable[[str], object] | None
) -> Iterator[tuple[bytes, int]]:
    offsets = column.offsets.to_pylist()
    first, last = offsets[0], offsets[-1]
    # A slice of a larger array: its children have the entries of the other rows as well.
    keys = texts(column.keys[first:last])
    front = prefix.encode()
    pieces = [
        _name(front, name or b"", check) + value if value else b""
        for name, value in zip(keys, values(column.items[first:last]), strict=True)
    ]
    full = all(pieces)
    present = column.is_valid().to_pylist()
    for (start, end), there in zip(pairwise(offsets), present, strict=True):
        inside = pieces[start - first : end - first] if there else []
        yield b"".join(inside), len(inside) if full else sum(map(bool, inside))


def _struct_entries(
    column: pa.Array, prefix: str, check: Callable[[str], object] | None
) -> Iterator[tuple[bytes, int]]:
    fields = []
    front = prefix.encode()
    for field, child in zip(column.type, column.flatten(), strict=True):
        name = _name(front, field.name.encode(), check)
        fields.append([name + value if value else b"" for value in values(child)])
    for inside in zip(*fields, strict=True):
        yield b"".join(inside), sum(map(bool, inside))


def _name(prefix: bytes, name: bytes, check: Callable[[str], object] | None) -> bytes:
    """Return the encoded key of an entry. The data chooses the names, so the cache of names has a limit."""
    found = _names.get((prefix, name))
    if found is None:
        if check is not None:
            check(name.decode())
        found = _names.keep((prefix, name), encode((prefix + name).decode()))
    return found
