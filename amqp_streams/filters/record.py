"""A record as filters see it: finds a field without decoding the others. Spec: AMQP 3.2; FILTEX 4.

Laws: bytes that are not valid AMQP make a field FAILED and raise nothing. If a map has a key twice, the last
entry counts, as in the codec. The delivery annotations are those that the node writes at delivery. The work
of all filters of a source for one record is bounded: filter and message come from untrusted peers, and the
work can be the product of their sizes.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from amqp_streams import names
from amqp_streams.errors import WireError
from amqp_streams.filters.fields import DEFAULTS, POSITIONS
from amqp_streams.filters.values import FAILED, MISSING, Failed, Missing
from amqp_streams.wire.decoder import decode, skip
from amqp_streams.wire.layout import DELIVERY_ANNOTATIONS, section_at
from amqp_streams.wire.offsets import offset_text
from amqp_streams.wire.types import Symbol, Timestamp, Value

ENTRIES_MAX: Final = 1024
"""The most entries of a map in which a key is searched for. In a larger map, the field is FAILED."""
COMPOUND_BYTES_MAX: Final = 64 << 10
"""The most bytes of a list, map, array or described value that is decoded. A larger one is FAILED."""
VALUE_BYTES_MAX: Final = 1 << 20
"""The most bytes of a text or binary value that is decoded.

A larger one is FAILED: a producer must not decide what the filters of consumers cost.
"""

SECTIONS_MAX: Final = 64
"""The most sections that are skipped before the wanted one: a body may have many."""
WORK_MAX: Final = 1 << 23
"""The most steps that all filters of a source take for one record.

A step, such as comparing a character, takes some nanoseconds. After the last step, fields are FAILED. The
limit is enough for one list or map of COMPOUND_BYTES_MAX.
"""
COMPOUND_STEPS: Final = 100
"""The most steps that decoding one byte of a list, map, array or described value takes."""
_SEARCH_STEPS: Final = 16
"""Bytes that a search for a key compares in one step."""
_CHEAP_SEARCH: Final = 1 << 14
"""The largest product of searched bytes and bytes of the key that is not counted as work. A backward search
takes this product at worst.
"""
_BACKWARDS_MAX: Final = 1 << 20
"""The largest such product for a backward search. Above it, a forward search is used, which is linear."""

Found: TypeAlias = "Value | Missing | Failed"


class Record:
    """The current record. One object is reused for all records of a call: creating one for each costs time.

    `latest`: the value of `@latest`, which is the partition's end at the attach. `seen`: the fields that were
    read, by section and name. `work`: the steps that were taken for this record.
    """

    __slots__ = ("latest", "message", "now_ms", "number", "partition", "seen", "timestamp_ms", "work")

    def __init__(self, *, partition: str, latest: int, now_ms: int | None) -> None:
        self.partition: Final = partition
        self.latest: Final = latest
        self.now_ms: Final = now_ms
        self.message = b""
        self.number = 0
        self.timestamp_ms = 0
        self.seen: dict[str, Found] = {}
        self.work = 0

    def turn_to(self, message: bytes, number: int, timestamp_ms: int) -> None:
        """Switch to another record."""
        self.message = message
        self.number = number
        self.timestamp_ms = timestamp_ms
        # Cleared and not replaced: an allocation for each record would cost more.
        self.seen.clear()
        self.work = 0

    def spend(self, steps: int) -> bool:
        """Count steps before they are taken. Returns False if the limit is reached: do not take them."""
        # Before the steps are taken, so that the limit holds also for the last of them.
        self.work += steps
        return self.work <= WORK_MAX


Getter = Callable[[Record], Found]


def getter(section: int, name: str) -> Getter:
    """Return a function that reads a field from a record.

    Its value, MISSING, or FAILED if the bytes are malformed.
    """
    if section == DELIVERY_ANNOTATIONS:
        return _ANNOTATIONS.get(name, _missing)
    if section in POSITIONS:
        return _listed(section, POSITIONS[section][name])
    return _mapped(section, name)


def with_default(section: int, name: str) -> Getter:
    """Like `once`, but a missing field has its default value, if it has one."""
    get = once(section, name)
    default = DEFAULTS.get(name) if section in POSITIONS else None
    if default is None:
        return get
    return lambda record: default if (value := get(record)) is MISSING else value


def once(section: int, name: str) -> Getter:
    """Like `getter`, but reads the field at most once for each record."""
    get = getter(section, name)
    if section == DELIVERY_ANNOTATIONS:
        return get
    key = f"{section} {name}"

    def found(record: Record) -> Found:
        seen = record.seen
        if key in seen:
            return seen[key]
        seen[key] = value = get(record)
        return value

    return found


def whole_map(section: int) -> Getter:
    """Return a function that decodes a whole section that is a map, at most once for each record.

    An absent section is an empty map.
    """
    key = f"{section}"

    def found(record: Record) -> Found:
        seen = record.seen
        if key in seen:
            return seen[key]
        try:
            start = _start(record.message, section)
            value: Found = {} if start is None else _decoded(record, start)
        except (WireError, IndexError):
            value = FAILED
        seen[key] = value = {} if value is None else value
        return value

    return found


def _missing(_record: Record) -> Found:
    return MISSING


_ANNOTATIONS: Final[dict[str, Getter]] = {
    names.OFFSET: lambda record: Symbol(offset_text(record.number)),
    names.TIMESTAMP: lambda record: Timestamp(record.timestamp_ms),
    names.SOURCE_PARTITION: lambda record: Symbol(record.partition),
}


def _listed(section: int, index: int) -> Getter:
    def found(record: Record) -> Found:
        message = record.message
        try:
            at = _start(message, section)
            if at is None or message[at] in {0x40, 0x45}:
                return MISSING
            if message[at] not in {0xC0, 0xD0}:
                return FAILED
            wide = message[at] == 0xD0
            # The end by the size of the list: a field must not lie beyond it.
            end = skip(message, at)
            count = int.from_bytes(message[at + 5 : at + 9]) if wide else message[at + 2]
            if count <= index:
                return MISSING
            at += 9 if wide else 3
            for _ in range(index):
                at = skip(message, at)
            value = _decoded(record, at)
        except (WireError, IndexError):
            # The bytes come from a producer: see the first law.
            return FAILED
        # The count of the list promised more fields than its size contains.
        if at >= end:
            return FAILED
        return MISSING if value is None else value

    return found


def _mapped(section: int, name: str) -> Getter:
    key = name.encode()
    needle = bytes((len(key) & 0xFF,)) + key
    width = len(needle)

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
            # Hot path: annotations are usually short, and then counting the work costs more than the search.
            cheap = (end - at) * width <= _CHEAP_SEARCH
            # From the end, because the last entry with a key counts.
            last = message.rfind(needle, at, end) if cheap else _last(record, needle, at, end)
            value_at = _entry(message, at, last, key) if last >= 0 else None
            return MISSING if value_at is None else _decoded(record, value_at)
        except (WireError, IndexError):
            # The bytes come from a producer: see the first law.
            return FAILED

    return found


_WIDE_TEXTS: Final = frozenset((0xB0, 0xB1, 0xB3))
_LARGE: Final = _WIDE_TEXTS | {0, 0xC0, 0xC1, 0xE0, 0xD0, 0xD1, 0xF0}
"""Constructors whose values can be large: long texts and binaries, and values that contain other values."""


def _decoded(record: Record, at: int) -> Value:
    """Return the value at byte `at`.

    Raises:
        WireError: the bytes are not a value, or decoding it would exceed a limit.
    """
    message = record.message
    code = message[at]
    if code in _LARGE:
        # The size is known without decoding.
        size = skip(message, at) - at
        text = code in _WIDE_TEXTS
        if size > (VALUE_BYTES_MAX if text else COMPOUND_BYTES_MAX) or not record.spend(
            size if text else size * COMPOUND_STEPS
        ):
            reason = f"the value at byte {at} has {size} bytes"
            raise WireError(reason)
    return decode(message, at)[0]


_WIDTHS: Final = tuple({4: 1, 5: 2, 6: 3, 7: 5, 8: 9, 9: 17}.get(code >> 4, 0) for code in range(256))
"""By constructor: the bytes of a value of fixed size, including the constructor; 0: the size varies."""


def _entry(message: bytes, at: int, last: int, key: bytes) -> int | None:
    """Return where the value of the last entry with this key begins; None if the map does not have the key.

    The entries begin at `at`. The key does not occur after `last`, so later entries are not read.
    """
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
            # A key that is not a text cannot be the wanted one.
            value_at, same = skip(message, at), False
        if same:
            found = value_at
        code = message[value_at]
        # Hot path: most values have a fixed size or are short texts, and need no call.
        width = _WIDTHS[code]
        at = (
            value_at + width
            if width
            else value_at + 2 + message[value_at + 1]
            if code in {0xA1, 0xA3}
            else skip(message, value_at)
        )
    return found


def _last(record: Record, needle: bytes, at: int, end: int) -> int:
    """Return a byte after which the key does not occur in a large map; -1 if it does not occur at all.

    Raises:
        WireError: the search exceeds the record's limit of work.
    """
    message, product = record.message, (end - at) * len(needle)
    backwards = product <= _BACKWARDS_MAX
    if not record.spend((product if backwards else end - at) // _SEARCH_STEPS):
        text = "too much work for one record"
        raise WireError(text)
    if backwards:
        return message.rfind(needle, at, end)
    # A forward search finds only the first occurrence: every entry may still have the key.
    return min(end, len(message)) if message.find(needle, at, end) >= 0 else -1


def _start(message: bytes, wanted: int) -> int | None:
    """Return where the value of a section begins; None if the message does not have the section.

    Raises:
        WireError: the sections before it are malformed or too many.
    """
    at, size, passed = 0, len(message), 0
    # The usual encodings first, without a call for each section: every filter of a record comes here.
    while at + 4 < size and message[at] == 0 and message[at + 1] == 0x53:
        passed += 1
        if passed > SECTIONS_MAX:
            text = f"more than {SECTIONS_MAX} sections"
            raise WireError(text)
        code, constructor = message[at + 2], message[at + 3]
        if code == wanted:
            return at + 3
        if code > wanted:  # sections are in the order of their codes
            return None
        if constructor in {0xC0, 0xC1, 0xA0}:
            at += 5 + message[at + 4]
        elif constructor in {0xD0, 0xD1, 0xB0}:
            at += 8 + int.from_bytes(message[at + 4 : at + 8])
        elif constructor in {0x45, 0x40}:
            at += 4
        else:
            break
    while at < size:
        passed += 1
        if passed > SECTIONS_MAX:
            text = f"more than {SECTIONS_MAX} sections"
            raise WireError(text)
        code, start, at = section_at(message, at)
        if code >= wanted:
            return start if code == wanted else None
    return None
