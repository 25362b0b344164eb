"""Reads keys and maps of text out of columns of sections, in Arrow: no step of Python for each row. Pure,
except for Arrow.

Both functions return None for sections in another than the usual form, which section_texts reads one by one.
"""

from array import array
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_connector.rows.section_texts import KEY_FRONT
from spark_connector.rows.slices import Slices, numbers_in

_KEY_FRONT_AT: Final = 5
_PAIRS_MAX: Final = 32
_MAP8: Final = 0xC1
_STR8: Final = 0xA1
_SYM8: Final = 0xA3
_TEXT: Final = pa.string()
_Pairs = list[tuple[str, Slices]]


def keys_in(sections: Slices) -> pa.StringArray | None:
    """Return the group key of each section of message annotations; null for an empty section.

    None: a section has more than a short key.
    """
    there = pc.greater(sections.sizes, _number(0))
    some = _only(sections, there)
    front = len(KEY_FRONT)
    # The key follows its size, one byte.
    at = pc.add(some.starts, _number(_KEY_FRONT_AT + front))
    if pc.any(pc.greater_equal(at, some.ends)).as_py():
        return None
    fronts = Slices(some.data, pc.add(some.starts, _number(_KEY_FRONT_AT)), at).column()
    if not _all(pc.equal(fronts, pa.scalar(KEY_FRONT, pa.binary()))):
        return None
    start = pc.add(at, _number(1))
    if not pc.add(start, some.bytes_at(at).cast(pa.int32())).equals(some.ends):
        return None
    return _spread(_text(Slices(some.data, start, some.ends)), there)


def maps_in(sections: Slices, kind: pa.MapType) -> pa.MapArray | None:
    """Return the map of each section as names and texts; null for an empty section.

    None: the sections do not all have the same names in the same order, or a value is not a short text.
    """
    there = pc.greater(sections.sizes, _number(0))
    some = _only(sections, there)
    pairs = _pairs(some)
    if pairs is None:
        return None
    count, rows = len(pairs), len(some)
    # The values of a row follow each other: pair j of row i is value i * count + j.
    starts, ends = array("i", bytes(4 * rows * count)), array("i", bytes(4 * rows * count))
    for at, (_, column) in enumerate(pairs):
        starts[at::count], ends[at::count] = numbers_in(column.starts), numbers_in(column.ends)
    texts = _text(Slices(some.data, _int32(starts), _int32(ends)))
    if texts is None:
        return None
    names = pa.array([name for name, _ in pairs], _TEXT)
    keys = names.take(_int32(array("i", range(count)) * rows))
    # Arrow marks a map that is null by a null where it begins.
    begins = pc.multiply(pc.subtract(pc.cumulative_sum(there.cast(pa.int32())), _number(1)), _number(count))
    begins = pc.if_else(there, begins, pa.scalar(None, pa.int32()))
    begins = pa.concat_arrays([begins, pa.array([rows * count], pa.int32())])
    return pa.MapArray.from_arrays(begins, keys, texts, type=kind)


def _pairs(sections: Slices) -> _Pairs | None:
    """Return the name and the values of each pair of the maps."""
    first, ends = sections.starts, sections.ends
    if not len(sections) or pc.any(pc.less(sections.sizes, _number(6))).as_py():
        return None
    items = pc.min_max(sections.bytes_at(pc.add(first, _number(5)))).as_py()
    count, odd = divmod(items["max"], 2)
    if items["min"] != items["max"] or odd or count > _PAIRS_MAX:
        return None
    if not _all(pc.equal(sections.bytes_at(pc.add(first, _number(3))), pa.scalar(_MAP8, pa.uint8()))):
        return None
    found: _Pairs = []
    at = pc.add(first, _number(6))
    for _ in range(count):
        name = _item(sections, at, (_STR8, _SYM8))
        values = None if name is None else _item(sections, name.ends, (_STR8,))
        text = None if name is None else _same(name)
        if values is None or text is None or any(text == one for one, _ in found):
            return None
        found.append((text, values))
        at = values.ends
    return found if at.equals(ends) else None


def _item(sections: Slices, at: pa.Int32Array, kinds: tuple[int, ...]) -> Slices | None:
    """Return the contents of the short texts at `at`; None if there is something else."""
    start = pc.add(at, _number(2))
    if pc.any(pc.greater(start, sections.ends)).as_py():
        return None
    if not _all(pc.is_in(sections.bytes_at(at), pa.array(kinds, pa.uint8()))):
        return None
    end = pc.add(start, sections.bytes_at(pc.add(at, _number(1))).cast(pa.int32()))
    return None if pc.any(pc.greater(end, sections.ends)).as_py() else Slices(sections.data, start, end)


def _same(names: Slices) -> str | None:
    """Return the text that all slices have; None if they differ, or are not UTF-8."""
    column = names.column()
    first = column[0]
    if not _all(pc.equal(column, first)):
        return None
    try:
        return str(first.as_py().decode())
    except UnicodeDecodeError:
        return None


def _text(slices: Slices | None) -> pa.StringArray | None:
    if slices is None:
        return None
    try:
        return slices.column().cast(_TEXT)
    except pa.ArrowInvalid:
        return None


def _only(sections: Slices, there: pa.BooleanArray) -> Slices:
    if there.true_count == len(sections):
        return sections
    return Slices(sections.data, sections.starts.filter(there), sections.ends.filter(there))


def _spread(texts: pa.StringArray | None, there: pa.BooleanArray) -> pa.StringArray | None:
    """Return `texts` in the rows that are there, and null in the others."""
    if texts is None or there.true_count == len(there):
        return texts
    number = pc.subtract(pc.cumulative_sum(there.cast(pa.int32())), _number(1))
    return texts.take(pc.if_else(there, number, pa.scalar(None, pa.int32())))


def _all(condition: pa.BooleanArray) -> bool:
    return bool(condition.true_count == len(condition))


def _int32(numbers: "array[int]") -> pa.Int32Array:
    return pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])


def _number(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.int32())
