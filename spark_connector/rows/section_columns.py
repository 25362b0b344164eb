"""Finds the sections of a column of messages, in Arrow: no step of Python for each row. Pure, except for
Arrow.

It reads only the usual forms: annotations, properties and application properties as maps and lists with a
size, then one data section that ends the message. For any other message it returns None, and message_parts
reads the messages of the batch one by one.

Spec: AMQP 1.0 core 3.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from amqp_streams.client.raw import APPLICATION_PROPERTIES, DATA, PROPERTIES
from spark_connector.rows.slices import Slices

MESSAGE_ANNOTATIONS: Final = 0x72
_SHORT_HEAD: Final = 5
_LONG_HEAD: Final = 8
_FORMS: Final = (
    (MESSAGE_ANNOTATIONS, 0xC1, 0xD1),
    (PROPERTIES, 0xC0, 0xD0),
    (APPLICATION_PROPERTIES, 0xC1, 0xD1),
)
_BODY: Final = (0xA0, 0xB0)


@dataclass(frozen=True, slots=True)
class Found:
    """`sections`: by code, for those that at least one message has; a row without the section is empty.

    `bodies`: the contents of the data sections.
    """

    sections: Mapping[int, Slices]
    bodies: Slices


def sections_of(messages: pa.BinaryArray) -> Found | None:
    """Return the sections of all messages; None if a message has another form."""
    rows = Slices.of(messages)
    at, sections = rows.starts, dict[int, Slices]()
    heads = _heads(rows, at)
    for code, short, long in _FORMS:
        if heads is None:
            return None
        narrow, wide = (pc.equal(heads, _head(code, kind)) for kind in (short, long))
        if not narrow.true_count and not wide.true_count:
            continue
        end = _end(rows, at, narrow, wide)
        if end is None:
            return None
        sections[code] = Slices(rows.data, at, end)
        at, heads = end, _heads(rows, end)
    if heads is None:
        return None
    return _with_body(rows, at, heads, sections)


@cache
def _head(code: int, kind: int) -> pa.Scalar:
    # Made when it is needed: the first scalar that is made imports pandas.
    return pa.scalar(int.from_bytes(bytes((0, 0x53, code, kind))), pa.uint32())


def _with_body(
    rows: Slices, at: pa.Int32Array, heads: pa.UInt32Array, sections: Mapping[int, Slices]
) -> Found | None:
    narrow, wide = (pc.equal(heads, _head(DATA, kind)) for kind in _BODY)
    if narrow.true_count + wide.true_count != len(rows):
        return None
    end = _end(rows, at, narrow, wide)
    # Bytes after the body: more data sections, or a footer.
    if end is None or not end.equals(rows.ends):
        return None
    sizes = _if(narrow, _number(_SHORT_HEAD), _number(_LONG_HEAD))
    return Found(sections, Slices(rows.data, pc.add(at, sizes), end))


def _heads(rows: Slices, at: pa.Int32Array) -> pa.UInt32Array | None:
    """Return the first four bytes of the section at `at`; None if a message has no section there."""
    if not len(rows) or pc.min(pc.subtract(rows.ends, at)).as_py() < _SHORT_HEAD:
        return None
    return rows.words_at(at)


def _end(
    rows: Slices, at: pa.Int32Array, narrow: pa.BooleanArray, wide: pa.BooleanArray
) -> pa.Int32Array | None:
    """Return where the section at `at` ends: at `at` itself for a row that has neither form.

    None: a section is longer than its message.
    """
    end = at
    if narrow.true_count:
        sizes = rows.bytes_at(pc.add(at, _number(_SHORT_HEAD - 1))).cast(pa.int32())
        end = _if(narrow, pc.add(at, pc.add(sizes, _number(_SHORT_HEAD))), end)
    if wide.true_count:
        # Only the rows with this form have four bytes there for certain.
        there = _if(wide, pc.add(at, _number(_SHORT_HEAD - 1)), rows.starts)
        if pc.any(pc.greater(pc.add(there, _number(_LONG_HEAD - _SHORT_HEAD + 1)), rows.ends)).as_py():
            return None
        sizes = rows.words_at(there).cast(pa.int64())
        # Compared before the addition, which could overflow.
        left = pc.subtract(rows.ends, at).cast(pa.int64())
        if pc.any(pc.and_(wide, pc.greater(sizes, left))).as_py():
            return None
        sizes = _if(wide, sizes, pa.scalar(0, pa.int64())).cast(pa.int32())
        end = _if(wide, pc.add(at, pc.add(sizes, _number(_LONG_HEAD))), end)
    return None if pc.any(pc.greater(end, rows.ends)).as_py() else end


def _if(condition: pa.BooleanArray, one: pa.Array, other: pa.Array) -> pa.Array:
    return pc.if_else(condition, one, other)


def _number(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.int32())
