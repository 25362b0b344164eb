"""Bytes that should be AMQP: values, sections of a message, annotations, offsets. Only `WireError` is an
answer, and what is read once is read again the same after it was written.
"""

import contextlib
import math
from collections.abc import Callable
from typing import Final

from amqp_streams.errors import WireError
from amqp_streams.wire import sections
from amqp_streams.wire.codec import decode, encode
from amqp_streams.wire.decoder import skip
from amqp_streams.wire.layout import bare_message_start, find_section
from amqp_streams.wire.offsets import offset_text, parse_offset
from amqp_streams.wire.types import Array, Described, Value
from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from fuzz.values import value


def run(data: bytes) -> str:
    """The first byte chooses how the rest is looked at."""
    draw = Draw(data)
    return (_value, _message, _message, _offset, _encoded)[draw.byte() % 5](draw)


def _value(draw: Draw) -> str:
    data = draw.rest()
    try:
        found, end = decode(data)
    except WireError as error:
        return _shape(error)
    if skip(data) != end:
        message = f"skip ends at {skip(data)}, decode at {end}"
        raise WrongError(message)
    _same_again(found)
    return f"a {type(found).__name__}"


def _encoded(draw: Draw) -> str:
    made = value(draw)
    _same_again(made)
    return f"wrote a {type(made).__name__}"


def _same_again(found: Value) -> None:
    try:
        written = encode(found)
    except WireError:
        # What came in with long forms may be too deep or too large for ours; said, not raised otherwise.
        return
    again, end = decode(written)
    if end != len(written) or not _same(again, found):
        message = f"{found!r} became {again!r}"
        raise WrongError(message)


def _same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return len(one) == len(other) and all(map(_same, one.values(), other.values()))
    if isinstance(one, Described) and isinstance(other, Described):
        return _same(one.descriptor, other.descriptor) and _same(one.value, other.value)
    if isinstance(one, Array) and isinstance(other, Array):
        return all(map(_same, one.items, other.items))
    return type(one) is type(other) and one == other


def _message(draw: Draw) -> str:
    data = draw.rest()
    shown = []
    looks: tuple[Callable[[bytes], object], ...] = (
        sections.strip,
        sections.group_key,
        sections.target_partition,
        sections.delivery_annotations,
        sections.message_annotations,
        sections.properties_to,
        bare_message_start,
        lambda message: find_section(message, 0x74),
    )
    for look in looks:
        try:
            look(data)
            shown.append("y")
        except WireError as error:
            shown.append(_shape(error))
    try:
        header, stored = sections.strip(data)
    except WireError:
        if shown[0] == "y":
            raise
    else:
        if sections.strip(stored) != (header, stored):
            message = f"stripping {stored!r} again changes it"
            raise WrongError(message)
        sections.strip_batch([data, data])
        with contextlib.suppress(WireError):  # its header may be not a list of a header's fields
            sections.with_delivery_count(stored, header, 3)
    return "".join(shown)


def _offset(draw: Draw) -> str:
    text = draw.rest().decode("utf-8", "replace")
    try:
        position = parse_offset(text)
    except ValueError:
        return "no offset"
    if isinstance(position, int) and offset_text(position) != text:
        message = f"{text!r} is read as {position}, which is written {offset_text(position)!r}"
        raise WrongError(message)
    return f"offset {type(position).__name__}"


def _shape(error: WireError) -> str:
    return "".join("#" if character.isdigit() else character for character in str(error))[:40]


TARGET: Final = Target(
    "wire",
    run,
    seconds_max=0.5,
    words=(b"\x00\x53", b"\xc1", b"\xd1", b"\xf0\x00\x00\x00", b"\xa3\x16event-streams-group-key"),
)
