"""Columns of CloudEvents as AMQP messages, in binary mode. Spec: CloudEvents 1.0, its AMQP binding 1.0.2; Event Streams 4.3. Pure.

    message annotations (group key: extension partitionkey) | properties (content-type) | application properties (attributes) | data

Law: what is written here passes the rules of CloudEvents, so that a Broker's Triggers take it; a row that would not is an error that names
the column and the row. Attributes are called `cloudEvents_…`; times are text of RFC 3339 in UTC.
"""

import re
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from amqp_streams.client.raw import encode
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

PREFIX: Final = "cloudEvents_"
KEY_ATTRIBUTE: Final = "partitionkey"
"""The extension whose value chooses the partition (CloudEvents partitioning extension)."""
NAME_LENGTH_MAX: Final = 128
INTEGER_MIN: Final = -(1 << 31)
INTEGER_MAX: Final = (1 << 31) - 1

_REQUIRED: Final = ("id", "source", "type")
_COLUMNS: Final = (*_REQUIRED, "subject", "time", "dataschema")
_NAME: Final = re.compile(r"[a-z0-9]+")
_OF_COLUMNS: Final = frozenset({*_COLUMNS, "specversion", "datacontenttype", "data"})
_SPEC_VERSION: Final = encode(PREFIX + "specversion") + encode("1.0")
# CloudEvents 2.3, String: control characters and what Unicode calls noncharacters (surrogates are not UTF-8).
_FORBIDDEN: Final = (
    r"[\x00-\x1f\x7f-\x{9f}\x{fdd0}-\x{fdef}"
    + "".join(f"\\x{{{plane << 16 | low:x}}}" for plane in range(17) for low in (0xFFFE, 0xFFFF))
    + "]"
)
_URI_REFERENCE: Final = r"^(?:[A-Za-z][A-Za-z0-9+.\-]*:|[^:/?#]*(?:[/?#]|$))"
_URI: Final = r"^[A-Za-z][A-Za-z0-9+.\-]*:."
_TIME: Final = (
    r"^\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|[12]\d))"
    r"[Tt](?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)$"
)
_LEAP_DAY: Final = re.compile(r"(\d{4})-02-29")
_WORD: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_QUOTED: Final = r'"(?:[^"\\\r\n]|\\[^\r\n])*"'
_MEDIA_TYPE: Final = re.compile(rf"{_WORD}/{_WORD}(?:[ \t]*+;(?:[ \t]*+{_WORD}=(?:{_WORD}|{_QUOTED}))?+)*+[ \t]*+")


def event_sections(columns: Mapping[str, pa.Array], rows: int) -> list[Pieces]:
    """The sections of events whose columns these are: each list has a piece for each row.

    Raises:
        RowError: a row is not a CloudEvent.
    """
    attributes = [[_SPEC_VERSION] * rows]
    for name in _COLUMNS:
        if name in columns:
            column = _time_as_text(columns[name]) if name == "time" else columns[name]
            _check(name, column)
            key = encode(PREFIX + name)
            attributes.append([value and key + value for value in values(column)])
    sections = []
    extensions = columns.get("extensions")
    inside = [b"".join(pieces) for pieces in zip(*attributes, strict=True)]
    counts = [sum(map(bool, pieces)) for pieces in zip(*attributes, strict=True)]
    if extensions is not None:
        _check_extensions(extensions)
        keys = _keys(extensions)
        if keys is not None:
            sections.append(key_sections(keys))
        more = entries_of(extensions, PREFIX, check_name)
        inside = [pieces + added for pieces, (added, _) in zip(inside, more, strict=True)]
        counts = [count + added for count, (_, added) in zip(counts, more, strict=True)]
    if "datacontenttype" in columns:
        _check_media_types(columns["datacontenttype"])
        sections.append(properties_sections(rows, {"content_type": columns["datacontenttype"]}))
    sections.append(application_properties(list(zip(inside, counts, strict=True))))
    sections.append(data_sections(columns["data"] if "data" in columns else pa.nulls(rows, pa.binary())))
    return sections


def check_name(name: str) -> None:
    """Whether an extension may be called so. Raises RowError."""
    if name == "specversion":
        raise RowError("column extensions has an entry 'specversion': it is 1.0, and written without being asked for")
    if name in _OF_COLUMNS:
        raise RowError(f"column extensions has an entry {name!r}, which has a column of its own")
    if not _NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
        raise RowError(f"column extensions has an entry {name[:NAME_LENGTH_MAX]!r}: names of attributes are lower-case letters and digits")


def _keys(extensions: pa.Array) -> list[str | None] | None:
    """The partitionkey of each row; None: no row has one."""
    if pa.types.is_map(extensions.type):
        column = pc.map_lookup(extensions, KEY_ATTRIBUTE, "first")
    elif extensions.type.get_field_index(KEY_ATTRIBUTE) >= 0:
        column = pc.struct_field(extensions, KEY_ATTRIBUTE)
    else:
        return None
    if column.null_count == len(column):
        return None
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        raise RowError(f"column extensions: {KEY_ATTRIBUTE} is binary: a key is a string")
    found: list[str | None] = column.cast(pa.string()).to_pylist()
    return found


def _check(name: str, column: pa.Array) -> None:
    if name in _REQUIRED:
        _refuse(pc.is_null(column), name, "is null")
    _refuse(pc.equal(pc.binary_length(column), 0), name, "is empty" if name in _REQUIRED else "is empty (null leaves it out)")
    _check_text(name, column)
    if name == "source":
        _refuse(pc.invert(pc.match_substring_regex(column, _URI_REFERENCE)), name, "is not a URI-reference", column)
    elif name == "dataschema":
        _refuse(pc.invert(pc.match_substring_regex(column, _URI)), name, "is not an absolute URI", column)
    elif name == "time":
        _refuse(
            pc.invert(pc.match_substring_regex(column, _TIME)), name, "is not a timestamp of RFC 3339 between the years 0 and 9999", column
        )
        _refuse(_no_leap_year(column), name, "is a day that is not in the calendar", column)


def _check_text(name: str, column: pa.Array) -> None:
    _refuse(pc.match_substring_regex(column, _FORBIDDEN), name, "has a control character or noncharacter, which no attribute may have")


def _check_extensions(extensions: pa.Array) -> None:
    if pa.types.is_map(extensions.type):
        first, last = (extensions.offsets[at].as_py() for at in (0, -1))
        children = [extensions.items[first:last]]
    else:
        children = extensions.flatten()
    for child in children:
        if pa.types.is_string(child.type) or pa.types.is_large_string(child.type):
            if pc.any(pc.match_substring_regex(child, _FORBIDDEN)).as_py():
                raise RowError("column extensions has a value with a control character or noncharacter, which no attribute may have")
        elif pa.types.is_int64(child.type) and pc.any(pc.or_(pc.less(child, INTEGER_MIN), pc.greater(child, INTEGER_MAX))).as_py():
            raise RowError("column extensions has an integer of more than 32 bits, which no attribute may have: cast it to string")


def _check_media_types(column: pa.Array) -> None:
    for found in pc.unique(column).to_pylist():
        if found is not None and not (found.isascii() and _MEDIA_TYPE.fullmatch(found)):
            raise RowError(f"column datacontenttype: {found[:80]!r} is not a media type of RFC 2046, such as application/json")


def _time_as_text(column: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(column.type):
        return column
    text = pc.strftime(column.cast(pa.timestamp("us", tz="UTC")), format="%Y-%m-%dT%H:%M:%SZ")
    return pc.replace_substring_regex(text, pattern=r"\.000000Z$", replacement="Z")


def _no_leap_year(column: pa.Array) -> pa.Array:
    """Where it is the 29th of February of a year that has none. Rare, so looked at one by one."""
    if not pc.any(pc.match_substring(column, "-02-29")).as_py():
        return pa.nulls(len(column), pa.bool_())
    return pa.array([_bad_leap_day(text) for text in column.to_pylist()], pa.bool_())


def _bad_leap_day(text: str | None) -> bool:
    found = _LEAP_DAY.match(text or "")
    return found is not None and not ((year := int(found[1])) % 4 == 0 and (year % 100 != 0 or year % 400 == 0))


def _refuse(wrong: pa.Array, name: str, what: str, shown: pa.Array | None = None) -> None:
    """Raise for the first row for which `wrong` is true."""
    if not pc.any(wrong).as_py():
        return
    row = pc.index(wrong, True).as_py()
    value = "" if shown is None else f" {shown[row].as_py()[:80]!r}"
    raise RowError(f"column {name}{value} {what}", f"row {row} of its batch")
