"""Columns of CloudEvents as AMQP messages, in binary mode. Pure.

    message annotations (group key: extension partitionkey) | properties (content-type)
    | application properties (attributes) | data

The messages follow the rules of `event_formats.attributes`, so that a Broker's Triggers accept them. A row
that does not is an error that names the column and the row. Times are text of RFC 3339 in UTC.

Spec: CloudEvents 1.0, its AMQP binding 1.0.2.
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from event_formats.amqp_binding.writing import attribute, attribute_key
from event_formats.attributes import (
    FORBIDDEN,
    INTEGER_MAX,
    INTEGER_MIN,
    NAME_LENGTH_MAX,
    SURROGATES,
    TIME,
    URI,
    URI_REFERENCE,
    is_media_type,
    is_name,
    is_time,
)
from event_formats.media import announces_event
from event_formats.names import AMQP_PREFIX, CONTENT_TYPE, DATA, KEY, REQUIRED
from spark_connector.errors import RowError
from spark_connector.writing.sections import (
    Pieces,
    application_properties,
    data_sections,
    entries_of,
    key_sections,
    properties_sections,
    values,
)

_COLUMNS: Final = ("id", "source", "type", "subject", "time", "dataschema")
_OF_COLUMNS: Final = frozenset({*REQUIRED, *_COLUMNS, CONTENT_TYPE, DATA})
_SPEC_VERSION: Final = attribute("specversion", "1.0")
# RE2 reads UTF-8, which does not have surrogates.
_FORBIDDEN: Final = (
    "["
    + "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in FORBIDDEN if (first, last) != SURROGATES)
    + "]"
)


def event_sections(columns: Mapping[str, pa.Array], rows: int) -> list[Pieces]:
    """Return the sections of the events in these columns: each list has a piece for each row.

    Raises:
        RowError: a row is not a valid CloudEvent.
    """
    attributes = [[_SPEC_VERSION] * rows]
    for name in _COLUMNS:
        if name in columns:
            # Attributes are text: a timestamp of AMQP has only milliseconds.
            column = _time_as_text(columns[name]) if name == "time" else columns[name]
            _check(name, column)
            key = attribute_key(name)
            # Null has no bytes, and an attribute without a value is left out.
            attributes.append([value and key + value for value in values(column)])
    sections: list[pa.BinaryArray | Pieces] = []
    extensions = columns.get("extensions")
    inside = [b"".join(pieces) for pieces in zip(*attributes, strict=True)]
    counts = [sum(map(bool, pieces)) for pieces in zip(*attributes, strict=True)]
    if extensions is not None:
        _check_extensions(extensions)
        keys = _keys(extensions)
        if keys is not None:
            # First, in the order of the sections of a message.
            sections.append(key_sections(keys))
        more = entries_of(extensions, AMQP_PREFIX, check_name)
        inside = [pieces + added for pieces, (added, _) in zip(inside, more, strict=True)]
        counts = [count + added for count, (_, added) in zip(counts, more, strict=True)]
    if CONTENT_TYPE in columns:
        _check_media_types(columns[CONTENT_TYPE])
        sections.append(properties_sections(rows, {"content_type": columns[CONTENT_TYPE]}))
    sections.append(application_properties(list(zip(inside, counts, strict=True))))
    sections.append(data_sections(columns[DATA] if DATA in columns else pa.nulls(rows, pa.binary())))
    return sections


def check_name(name: str) -> None:
    """Check that an extension may have this name.

    Raises:
        RowError: the name is not valid.
    """
    if name == "specversion":
        raise RowError("column extensions has an entry 'specversion': leave it out, it is always 1.0")
    if name in _OF_COLUMNS:
        raise RowError(f"column extensions has an entry {name!r}, which has a column of its own")
    if not is_name(name):
        raise RowError(
            f"column extensions has an entry {name[:NAME_LENGTH_MAX]!r}: names of attributes are lower-case"
            " letters and digits"
        )


def _keys(extensions: pa.Array) -> pa.Array | None:
    """Return the partitionkey of each row; None if no row has one."""
    if pa.types.is_map(extensions.type):
        column = pc.map_lookup(extensions, KEY, "first")
    elif extensions.type.get_field_index(KEY) >= 0:
        column = pc.struct_field(extensions, KEY)
    else:
        return None
    # Without any key, a section for each row would be empty.
    if column.null_count == len(column):
        return None
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        raise RowError(f"column extensions: {KEY} is binary: a key is a string")
    return column


def _check(name: str, column: pa.Array) -> None:
    required = name in REQUIRED
    if required:
        _refuse(pc.is_null(column), name, "is null")
    _refuse(
        pc.equal(pc.binary_length(column), 0),
        name,
        "is empty" if required else "is empty (null leaves it out)",
    )
    _check_text(name, column)
    if name == "source":
        _refuse(
            pc.invert(pc.match_substring_regex(column, URI_REFERENCE)), name, "is not a URI-reference", column
        )
    elif name == "dataschema":
        _refuse(pc.invert(pc.match_substring_regex(column, URI)), name, "is not an absolute URI", column)
    elif name == "time":
        _refuse(
            pc.invert(pc.match_substring_regex(column, TIME)),
            name,
            "is not a timestamp of RFC 3339 between the years 0 and 9999",
            column,
        )
        _refuse(_no_leap_year(column), name, "is a day that does not exist", column)


def _check_text(name: str, column: pa.Array) -> None:
    _refuse(
        pc.match_substring_regex(column, _FORBIDDEN),
        name,
        "has a control character or noncharacter, which an attribute cannot have",
    )


def _check_extensions(extensions: pa.Array) -> None:
    if pa.types.is_map(extensions.type):
        first, last = (extensions.offsets[at].as_py() for at in (0, -1))
        # An Arrow array may be a slice: its children have the values of all rows.
        children = [extensions.items[first:last]]
    else:
        children = extensions.flatten()
    for child in children:
        if pa.types.is_string(child.type) or pa.types.is_large_string(child.type):
            if pc.any(pc.match_substring_regex(child, _FORBIDDEN)).as_py():
                raise RowError(
                    "column extensions has a value with a control character or noncharacter, which is not"
                    " allowed in an attribute"
                )
        elif (
            pa.types.is_int64(child.type)
            and pc.any(pc.or_(pc.less(child, INTEGER_MIN), pc.greater(child, INTEGER_MAX))).as_py()
        ):
            raise RowError(
                "column extensions has an integer of more than 32 bits, which an attribute cannot have: cast"
                " it to string"
            )


def _check_media_types(column: pa.Array) -> None:
    # Few distinct types: each is checked once.
    for found in pc.unique(column).to_pylist():
        if found is not None and not is_media_type(found):
            raise RowError(
                f"column datacontenttype: {found[:80]!r} is not a media type of RFC 2046, such as"
                " application/json"
            )
        if found is not None and announces_event(found):
            # Readers would read the data as the event, and ignore the attributes.
            raise RowError(
                f"column datacontenttype: {found[:80]!r} announces an event, so a message cannot have it"
                " together with attributes: name the type of the data, such as application/json"
            )


def _time_as_text(column: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(column.type):
        return column
    text = pc.strftime(column.cast(pa.timestamp("us", tz="UTC")), format="%Y-%m-%dT%H:%M:%SZ")
    return pc.replace_substring_regex(text, pattern=r"\.000000Z$", replacement="Z")


def _no_leap_year(column: pa.Array) -> pa.Array:
    """Return where a 29 February does not exist. Such days are rare, so each is checked separately."""
    if not pc.any(pc.match_substring(column, "-02-29")).as_py():
        # Null counts as not refused.
        return pa.nulls(len(column), pa.bool_())
    return pa.array([text is not None and not is_time(text) for text in column.to_pylist()], pa.bool_())


def _refuse(wrong: pa.Array, name: str, what: str, shown: pa.Array | None = None) -> None:
    """Raise RowError for the first row for which `wrong` is true."""
    if not pc.any(wrong).as_py():
        return
    # Only now, for the error: the usual batch has no such row.
    row = pc.index(wrong, True).as_py()
    value = "" if shown is None else f" {shown[row].as_py()[:80]!r}"
    raise RowError(f"column {name}{value} {what}", f"row {row} of its batch")
