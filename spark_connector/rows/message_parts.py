"""Finds the sections of messages that columns need (AMQP 1.0 core 3.2), one message after the other. Pure.

section_columns.py reads the usual forms faster, without a loop over the messages.

Sections are found without decoding, and each distinct section is decoded once. A row has the number of its
section in a table of distinct sections, which Arrow expands to a column.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from amqp_streams.client.raw import (
    APPLICATION_PROPERTIES,
    DATA,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Described,
    Section,
    WireError,
    decode,
    sections,
)
from spark_connector.rows.section_columns import MESSAGE_ANNOTATIONS

_T = TypeVar("_T")

BODY: Final = DATA
"""The code of the body, of any kind, in sets of wanted sections."""

_LISTED: Final = (MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES)
_SHORT: Final = frozenset((0xC0, 0xC1))
_LONG: Final = frozenset((0xD0, 0xD1))
_EMPTY_LIST: Final = 0x45
_REMEMBERED_MAX: Final = 4096
_REMEMBERED_BYTES_MAX: Final = 512

Body = bytes | None


class Numbered(dict[bytes, int]):
    """Distinct sections. The first look-up of a section gives it the next number."""

    def __missing__(self, section: bytes) -> int:
        number = self[section] = len(self)
        return number


class Parts:
    """The parts of some messages.

    `bodies`, `kinds`: by row. `codes[section]`: the numbers of the sections in `tables[section]`, by row.
    `faults`: rows that are not valid messages, with the reason; they have no sections and no body.
    """

    __slots__ = ("bodies", "codes", "faults", "kinds", "tables")

    def __init__(self, wanted: frozenset[int], *, kinds: bool = False) -> None:
        self.bodies: list[Body] = []
        self.kinds: list[str | None] | None = [] if kinds else None
        self.codes: dict[int, list[int]] = {code: [] for code in _LISTED if code in wanted}
        self.tables: dict[int, Numbered] = {code: Numbered() for code in self.codes}
        self.faults: dict[int, str] = {}


def take_apart(messages: Sequence[bytes], wanted: frozenset[int], *, kinds: bool = False) -> Parts:
    """Find the sections with the codes `wanted` in each message. `kinds`: also find the kind of its body."""
    parts = Parts(wanted, kinds=kinds)
    _walk(messages, parts, with_body=BODY in wanted)
    return parts


def _walk(messages: Sequence[bytes], parts: Parts, *, with_body: bool) -> None:
    """Process the messages one by one."""
    kinds = parts.kinds is not None
    first, second, third = (_Column(parts, code) for code in _LISTED)
    with_first, with_second, with_third = first.wanted, second.wanted, third.wanted
    step_of, body_of = _STEPS.get, parts.bodies.append
    # Hot path: this loop is most of the cost of a row. It reads only the usual forms; `_take` reads the
    # others.
    for row, message in enumerate(messages):
        at, size = 0, len(message)
        annotations = properties = application = b""
        while (step := step_of(message[at : at + 4])) is not None and at + 5 < size:
            code, wide = step
            end = at + 8 + int.from_bytes(message[at + 4 : at + 8]) if wide else at + 5 + message[at + 4]
            if code == BODY:
                break
            if code == MESSAGE_ANNOTATIONS:
                annotations = message[at:end] if with_first else b""
            elif code == APPLICATION_PROPERTIES:
                application = message[at:end] if with_third else b""
            elif with_second:
                properties = message[at:end]
            at = end
        else:
            end = -1
        # Anything unusual: another form, a missing body, or bytes after the body.
        if end != size or kinds:
            _take(row, message, parts, with_body=with_body)
            continue
        if with_body:
            body_of(message[at + 8 if wide else at + 5 :])
        if with_first:
            first.add(first.table[annotations])
        if with_second:
            second.add(second.table[properties])
        if with_third:
            third.add(third.table[application])


class _Column:
    """The table and the list of numbers of one section, as local names for the hot loop."""

    __slots__ = ("add", "table", "wanted")

    def __init__(self, parts: Parts, code: int) -> None:
        self.wanted = code in parts.codes
        self.table = parts.tables.get(code, Numbered())
        self.add = parts.codes.get(code, []).append


_STEPS: Final = {
    b"\x00S" + bytes((code, kind)): (code, kind in _LONG | {0xB0})
    for code, kinds in (
        (MESSAGE_ANNOTATIONS, (0xC1, 0xD1)),
        (PROPERTIES, (0xC0, 0xD0)),
        (APPLICATION_PROPERTIES, (0xC1, 0xD1)),
        (DATA, (0xA0, 0xB0)),
    )
    for kind in kinds
}
"""By the first bytes of a section in a usual form: its code, and whether its size has four bytes."""


def _take(row: int, message: bytes, parts: Parts, *, with_body: bool) -> None:
    """Read one message in any form, valid or not."""
    found: dict[int, bytes] = {}
    body: Body = None
    kind: str | None = None
    try:
        at = _front(message, found)
        if with_body or parts.kinds is not None:
            body, kind = _body(message, at)
    except (WireError, IndexError, ValueError) as error:
        parts.faults[row] = f"the bytes are not a valid AMQP message: {error}"
        found.clear()
    for code, codes in parts.codes.items():
        codes.append(parts.tables[code][found.get(code, b"")])
    if with_body:
        parts.bodies.append(body)
    if parts.kinds is not None:
        parts.kinds.append(kind)


def _front(message: bytes, found: dict[int, bytes]) -> int:
    """Return the index of the byte where the body begins. Adds the sections before it to `found`.

    Raises:
        WireError, IndexError: the message is not valid.
    """
    at, size, previous = 0, len(message), 0
    while at < size:
        if message[at : at + 2] != b"\x00\x53":
            return _slow_front(message, found)
        code, kind = message[at + 2], message[at + 3]
        if code >= DATA:
            return at
        if kind in _SHORT:
            end = at + 5 + message[at + 4]
        elif kind in _LONG:
            end = at + 8 + int.from_bytes(message[at + 4 : at + 8])
        elif kind == _EMPTY_LIST:
            end = at + 4
        else:
            return _slow_front(message, found)
        # Sections have an order (AMQP 1.0 core 3.2): anything else goes to the strict parser.
        if end > size or code <= previous:
            return _slow_front(message, found)
        found[code] = message[at:end]
        at, previous = end, code
    return at or _slow_front(message, found)


def _slow_front(message: bytes, found: dict[int, bytes]) -> int:
    """The same for messages in an unusual form, or messages that are not valid."""
    found.clear()
    for section in sections(message):
        if section.code >= DATA:
            return section.start
        found[section.code] = message[section.start : section.end]
    return len(message)


def _body(message: bytes, at: int) -> tuple[Body, str | None]:
    """Return the bytes of the body that begins at byte `at`, and its kind."""
    head = message[at : at + 4]
    if head == b"\x00Su\xa0" and at + 5 + message[at + 4] == len(message):
        return message[at + 5 :], "data"
    if head == b"\x00Su\xb0" and at + 8 + int.from_bytes(message[at + 4 : at + 8]) == len(message):
        return message[at + 8 :], "data"
    found = [section for section in sections(message) if section.code in {DATA, SEQUENCE, VALUE}]
    if not found:
        return None, None
    values = [section_value(message[section.start : section.end]) for section in found]
    if found[0].code == DATA:
        return b"".join(value for value in values if isinstance(value, bytes)), "data"
    return _other_body(found, values)


def _other_body(found: Sequence[Section], values: Sequence[object]) -> tuple[Body, str]:
    from spark_connector.rows.values import text_of  # noqa: PLC0415 - few messages need it

    if found[0].code == SEQUENCE:
        items = [item for value in values if isinstance(value, list) for item in value]
        return (text_of(items) or "").encode(), "sequence"
    value = values[0]
    if type(value) is bytes:
        return value, "value"
    text = text_of(value)
    return None if text is None else text.encode(), "value"


def section_value(section: bytes) -> object:
    """Return the value of one section.

    Raises:
        WireError: the section is not valid.
    """
    value, _ = decode(section, 0)
    return value.value if isinstance(value, Described) else value


class Memory:
    """A bounded cache of decoded sections over all batches, because keys and types repeat."""

    def __init__(self, read: Callable[[bytes], _T]) -> None:
        self.read: Final[Callable[[bytes], object]] = read
        self._known: Final[dict[bytes, object]] = {}

    def __call__(self, section: bytes) -> object:
        """Return the decoded section. Raises what `read` raises."""
        value = self._known.get(section, self)
        if value is not self:
            return value
        value = self.read(section)
        if len(section) <= _REMEMBERED_BYTES_MAX:
            if len(self._known) >= _REMEMBERED_MAX:
                # Emptied instead of evicting single entries: what repeats is soon known again.
                self._known.clear()
            self._known[section] = value
        return value
