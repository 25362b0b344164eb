"""One record under the eyes of a filter: its fields, found without decoding what is not asked for. Spec: AMQP 3.2; FILTEX 4.

Laws: bytes that are no AMQP make a field FAILED and nothing else; of equal keys in one map the last counts, as in the codec. The delivery
annotations are those that this node writes at delivery, whatever the producer sent.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from amqp_streams import names
from amqp_streams.errors import WireError
from amqp_streams.filters.fields import DEFAULTS, POSITIONS
from amqp_streams.filters.values import FAILED, MISSING, Failed, Missing
from amqp_streams.wire.decoder import decode, skip
from amqp_streams.wire.layout import DELIVERY_ANNOTATIONS, find_section
from amqp_streams.wire.offsets import offset_text
from amqp_streams.wire.types import Symbol, Timestamp, Value

ENTRIES_MAX: Final = 1024
"""Entries of one map of a message that are looked through for a key."""
COMPOUND_BYTES_MAX: Final = 64 << 10
"""Of a list, map, array or described value that is decoded for what is inside it."""
VALUE_BYTES_MAX: Final = 1 << 20
"""Of any value that is decoded. Beyond these the field is FAILED: a producer must not choose what a filter costs its readers."""

Found: TypeAlias = "Value | Missing | Failed"


class Record:
    """A record, one after another in the same object. `latest`: the partition's end when the link attached, as `@latest` means it.

    `seen`: fields that were found already, by section and name.
    """

    __slots__ = ("latest", "message", "now_ms", "number", "partition", "seen", "timestamp_ms")

    def __init__(self, *, partition: str, latest: int, now_ms: int | None) -> None:
        self.partition: Final = partition
        self.latest: Final = latest
        self.now_ms: Final = now_ms
        self.message = b""
        self.number = 0
        self.timestamp_ms = 0
        self.seen: dict[str, Found] = {}

    def turn_to(self, message: bytes, number: int, timestamp_ms: int) -> None:
        """Be another record from now on."""
        self.message = message
        self.number = number
        self.timestamp_ms = timestamp_ms
        self.seen.clear()


Getter = Callable[[Record], Found]


def getter(section: int, name: str) -> Getter:
    """What finds a field of a section in a record: its value, MISSING, or FAILED if the message is broken there."""
    if section == DELIVERY_ANNOTATIONS:
        return _ANNOTATIONS.get(name, _missing)
    if section in POSITIONS:
        return _listed(section, POSITIONS[section][name])
    return _mapped(section, name)


def with_default(section: int, name: str) -> Getter:
    """As `getter`, but a field that is missing and has a default has that; found once however often it is asked for."""
    get = getter(section, name)
    if section == DELIVERY_ANNOTATIONS:
        return get
    default = DEFAULTS.get(name) if section in POSITIONS else None
    place = f"{section} {name}"

    def found(record: Record) -> Found:
        seen = record.seen
        if place in seen:
            return seen[place]
        value = get(record)
        if value is MISSING and default is not None:
            value = default
        seen[place] = value
        return value

    return found


def whole_map(section: int) -> Getter:
    """What decodes all of a section that is a map; an absent one is empty."""

    def found(record: Record) -> Found:
        try:
            start = _start(record.message, section)
            value = {} if start is None else _decoded(record.message, start)
        except (WireError, IndexError):
            return FAILED
        return {} if value is None else value

    return found


def _missing(_record: Record) -> Found:
    return MISSING


_ANNOTATIONS: Final[dict[str, Getter]] = {
    names.OFFSET: lambda record: Symbol(offset_text(record.number)),
    names.TIMESTAMP: lambda record: Timestamp(record.timestamp_ms),
    names.SOURCE_PARTITION: lambda record: Symbol(record.partition),
}


def _listed(section: int, place: int) -> Getter:
    def found(record: Record) -> Found:
        message = record.message
        try:
            at = _start(message, section)
            if at is None or message[at] in {0x40, 0x45}:
                return MISSING
            if message[at] not in {0xC0, 0xD0}:
                return FAILED
            wide = message[at] == 0xD0
            end = skip(message, at)
            count = int.from_bytes(message[at + 5 : at + 9]) if wide else message[at + 2]
            if count <= place:
                return MISSING
            at += 9 if wide else 3
            for _ in range(place):
                at = skip(message, at)
            value = _decoded(message, at)
        except (WireError, IndexError):
            return FAILED
        if at >= end:
            return FAILED
        return MISSING if value is None else value

    return found


def _mapped(section: int, name: str) -> Getter:
    key = name.encode()
    needle = bytes((len(key) & 0xFF,)) + key

    def found(record: Record) -> Found:
        message = record.message
        try:
            start = _start(message, section)
            if start is None or message[start] == 0x40:
                return MISSING
            if message[start] == 0xC1:
                end, at = start + 2 + message[start + 1], start + 3
            elif message[start] == 0xD1:
                end, at = start + 5 + int.from_bytes(message[start + 1 : start + 5]), start + 9
            else:
                return FAILED
            last = message.rfind(needle, at, end)
            value_at = _entry(message, at, last, key) if last >= 0 else None
            return MISSING if value_at is None else _decoded(message, value_at)
        except (WireError, IndexError):
            return FAILED

    return found


_WIDE_TEXTS: Final = frozenset((0xB0, 0xB1, 0xB3))
_WIDE_COMPOUNDS: Final = frozenset((0xD0, 0xD1, 0xF0))


def _decoded(message: bytes, at: int) -> Value:
    """The value at byte `at`. Raises WireError if it is none or too large to be looked at for each record."""
    code = message[at]
    if code in _WIDE_TEXTS or code in _WIDE_COMPOUNDS or code == 0:
        size = skip(message, at) - at
        if size > (VALUE_BYTES_MAX if code in _WIDE_TEXTS else COMPOUND_BYTES_MAX):
            text = f"the value at byte {at} has {size} bytes"
            raise WireError(text)
    return decode(message, at)[0]


_WIDTHS: Final = tuple({4: 1, 5: 2, 6: 3, 7: 5, 8: 9, 9: 17}.get(code >> 4, 0) for code in range(256))
"""Bytes of a value whose constructor tells its size, the constructor included; 0 for the others."""


def _entry(message: bytes, at: int, last: int, key: bytes) -> int | None:
    """Where the value of the last entry with this key begins, the entries being from `at` on. Behind `last` no key is the one."""
    found: int | None = None
    length = len(key)
    entries = 0
    while at < last:
        entries += 1
        if entries > ENTRIES_MAX:
            text = f"a map of more than {ENTRIES_MAX} entries"
            raise WireError(text)
        code = message[at]
        if code in {0xA1, 0xA3}:
            size = message[at + 1]
            value_at = at + 2 + size
            same = size == length and message.startswith(key, at + 2)
        elif code in {0xB1, 0xB3}:
            size = int.from_bytes(message[at + 1 : at + 5])
            value_at = at + 5 + size
            same = size == length and message.startswith(key, at + 5)
        else:
            value_at, same = skip(message, at), False
        if same:
            found = value_at
        code = message[value_at]
        width = _WIDTHS[code]
        at = value_at + width if width else value_at + 2 + message[value_at + 1] if code in {0xA1, 0xA3} else skip(message, value_at)
    return found


def _start(message: bytes, wanted: int) -> int | None:
    """Where the value of a section begins, None without it: what `find_section` says, faster for sections in their usual forms."""
    at, size = 0, len(message)
    while at + 4 < size and message[at] == 0 and message[at + 1] == 0x53:
        code, constructor = message[at + 2], message[at + 3]
        if code == wanted:
            return at + 3
        if code > wanted:
            return None
        if constructor in {0xC0, 0xC1, 0xA0}:
            at += 5 + message[at + 4]
        elif constructor in {0xD0, 0xD1, 0xB0}:
            at += 8 + int.from_bytes(message[at + 4 : at + 8])
        elif constructor in {0x45, 0x40}:
            at += 4
        else:
            break
    if at == size:
        return None
    found = find_section(message[at:] if at else message, wanted)
    return None if found is None else at + found.start
