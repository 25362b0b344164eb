"""The batch that a producer sends: many events in one AMQP message with message-format 0x80013700. For
authors of other clients: docs/batched-sends.md.

    00 53 71  d1 <size> <count>        delivery annotations: a map, all entries optional
      amqp-streams:sizes               array of uint (f0 <size> <count> 70), 4 bytes each: bytes of messages
      amqp-streams:message-formats     array of uint: two items for each event whose format is not 0, its
                                       index in the batch and its format
      amqp-streams:resumes             true: the sender knows which batch was rejected before
    00 53 75  b0 <size> <message>      a data section for each event

A batch may be compressed as a whole: `wire/batched/compression.py`.

Other sections before the data are allowed and skipped, and a footer after it. With `sizes`, each data section
has a size of 4 bytes and nothing follows, so that the messages are found without reading the sections. Event
Hubs clients write no delivery annotations.

Law: reading returns what was written, and the sections are those that any AMQP library reads.
"""

from array import array
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from struct import Struct
from typing import Final

from amqp_streams import names
from amqp_streams.errors import WireError
from amqp_streams.wire.batched.arrays import (
    SECTION_BYTES,
    SplitSections,
    join_sections,
    numbers_of,
    read_array,
    sizes_of,
    split_sections,
    write_array,
)
from amqp_streams.wire.batched.compression import decompressed
from amqp_streams.wire.decoder import decode, skip
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.layout import (
    DATA,
    DATA_BINARY8,
    DATA_BINARY32,
    DELIVERY_ANNOTATIONS,
    DELIVERY_ANNOTATIONS_HEAD,
    FOOTER,
    NAMES,
    map_entries,
    section_at,
)
from amqp_streams.wire.types import Symbol, Value

EVENT_BYTES: Final = SECTION_BYTES + 4
"""How many bytes each event needs in a batch in addition to its message."""
FORMAT_BYTES: Final = 8
"""How many more bytes an event needs if its message-format is not 0."""
BATCH_OVERHEAD_BYTES: Final = 128
"""How many bytes a batch needs in addition to its events, at most."""
ANNOTATIONS_MAX: Final = 64
"""The most delivery annotations of a batch: the node looks at each of them."""

_NOTHING_STORED: Final = "; no event of the batch is stored"
_MAP: Final = Struct(">BII")
_MAP_CODE: Final = 0xD1
_SIZES, _FORMATS, _RESUMES = (
    encode(Symbol(name)) for name in (names.BATCH_SIZES, names.BATCH_MESSAGE_FORMATS, names.BATCH_RESUMES)
)
_TRUE: Final = b"\x41"
_TRUES: Final = (_TRUE, b"\x56\x01")
_ARRAY_CODE: Final = 0xF0
_ARRAY_BYTES: Final = 10
"""The bytes of an array in front of its items."""
_SECTIONS_A_STEP: Final = 256
_NAME_BYTES_MAX: Final = 64
_OURS: Final = b"amqp-streams:"


class TooManyEventsError(WireError):
    """A batch has more events than the reader takes."""


@dataclass(frozen=True, slots=True, eq=False)
class SentBatch:
    """Event i has the message `messages[i]` and the message-format `formats.get(i, 0)`.

    `resumes`: the sender has learned which batch of this link was rejected last. `encoded`: the bytes of the
    batch, decompressed.
    """

    messages: Sequence[bytes]
    formats: Mapping[int, int] = field(default_factory=dict)
    resumes: bool = False
    encoded: bytes = b""


def write_sent_batch(
    messages: Sequence[bytes], formats: Mapping[int, int] | None = None, *, resumes: bool = False
) -> bytes:
    """Encode a batch of at least one event."""
    assert messages, "a batch has at least one event"
    sizes = sizes_of(messages)
    pairs: list[bytes] = []
    if formats:
        pairs += [_FORMATS, write_array(0x70, array("I", chain.from_iterable(formats.items())))]
    if resumes:
        pairs += [_RESUMES, _TRUE]
    return join_sections(_head(sizes, pairs), sizes, messages)


def encoded_batch(sizes: "array[int]", sections: "bytes | memoryview") -> bytes:
    """Encode a batch whose data sections are encoded already, each as DATA_BINARY32, its size, its message.

    `sizes`: of the messages.
    """
    assert len(sections) == sum(sizes) + SECTION_BYTES * len(sizes) > 0, "the sections have these sizes"
    return b"".join((_head(sizes, []), sections))


def resuming(batch: bytes, bytes_max: int) -> bytes:
    """Return an encoded batch with the annotation that it resumes the link. A compressed batch, of at most
    `bytes_max` bytes when it is decompressed, is returned decompressed.

    Raises: as `read_sent_batch`, if the front of the message is not that of a batch.
    """
    at, pair = 0, _RESUMES + _TRUE
    code, start, end = section_at(batch, at)
    if code < DELIVERY_ANNOTATIONS:
        at = end
        code, start, end = section_at(batch, at)
    if code != DELIVERY_ANNOTATIONS:
        start = end = at
        count, pairs = 0, pair
    else:
        found = _annotations(batch, start, end, len(batch))
        if found.codec is not None:
            frame = _only_section(batch, end)
            return resuming(decompressed(frame, found.codec, found.uncompressed, bytes_max), bytes_max)
        count, start = map_entries(batch, start, end)
        pairs = batch[start:end] + pair
    head = DELIVERY_ANNOTATIONS_HEAD + _MAP.pack(_MAP_CODE, 4 + len(pairs), count + 2) + pairs
    return b"".join((batch[:at], head, batch[end:]))


def _head(sizes: "array[int]", more: Sequence[bytes]) -> bytes:
    pairs = [_SIZES, write_array(0x70, sizes), *more]
    content = b"".join(pairs)
    return DELIVERY_ANNOTATIONS_HEAD + _MAP.pack(_MAP_CODE, 4 + len(content), len(pairs)) + content


def read_sent_batch(message: bytes, events_max: int, bytes_max: int | None = None) -> SentBatch:
    """Do all steps of `read_in_steps`."""
    steps = read_in_steps(message, events_max, bytes_max)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            batch: SentBatch = end.value
            return batch


def read_in_steps(
    message: bytes, events_max: int, bytes_max: int | None = None, split: SplitSections | None = None
) -> Generator[None, None, SentBatch]:
    """Decode a batch of at most `events_max` events. The events are not decoded. Yields after each step of
    about a tenth of a millisecond.

    `bytes_max`: the most bytes of a compressed batch when it is decompressed; None: a compressed batch is not
    valid here. `split`: see `split_sections`.

    Raises:
        TooManyEventsError: it has more events.
        TooLargeBatchError, UnknownCodecError: it is compressed, and cannot be decompressed here.
        WireError: the bytes are not a message, or not a batch.
    """
    at, previous, annotations = 0, 0, _Annotations()
    while not message.startswith(DATA_BINARY32, at) and not message.startswith(DATA_BINARY8, at):
        code, start, end = section_at(message, at)
        if code == DATA:
            break
        if code > DATA or code <= previous:
            raise WireError(f"{NAMES[code]} at byte {at} is not allowed there in a batch of data sections")
        if code == DELIVERY_ANNOTATIONS and message.find(_OURS, start, end) >= 0:
            annotations = _annotations(message, start, end, events_max)
        at, previous = end, code
    if annotations.codec is not None:
        if bytes_max is None:
            raise WireError("a compressed batch may not contain a compressed batch")
        frame = _only_section(message, at)
        batch = decompressed(frame, annotations.codec, annotations.uncompressed, bytes_max)
        yield
        return (yield from read_in_steps(batch, events_max, split=split))
    sizes, pairs = annotations.sizes, annotations.formats
    if len(sizes) > events_max:
        raise _too_many(events_max)
    messages: Sequence[bytes]
    if sizes:
        messages = split_sections(message, at, sizes, split)
    else:
        messages = list[bytes]()
        while at < len(message) and len(messages) <= events_max:
            at = _walk(message, at, messages, _SECTIONS_A_STEP)
            yield
    if len(messages) > events_max:
        raise _too_many(events_max)
    if len(pairs) % 2 or max(pairs[::2], default=-1) >= len(messages):
        raise WireError(
            f"the message-formats of a batch of {len(messages)} events are not those of its events"
        )
    return SentBatch(messages, dict(zip(pairs[::2], pairs[1::2], strict=True)), annotations.resumes, message)


def rejection_text(index: int, reason: str) -> str:
    """The description of a rejected batch: `reason` is what the event gets alone."""
    return f"event {index} of the batch: {reason}{_NOTHING_STORED}"


def event_text(index: int, description: str) -> str:
    """The reason in a `rejection_text`; any other text is returned as it is."""
    return description.removeprefix(f"event {index} of the batch: ").removesuffix(_NOTHING_STORED)


def _only_section(message: bytes, at: int) -> bytes:
    """Return the content of the data section of a compressed batch."""
    found: list[bytes] = []
    _walk(message, at, found, 2)
    if len(found) != 1:
        raise WireError("a compressed batch has one data section")
    return found[0]


def _walk(message: bytes, at: int, found: list[bytes], count: int) -> int:
    """Add the contents of the next data sections from byte `at` on, at most `count`. A footer may follow the
    last one. Returns where the next section begins.
    """
    end, last = len(message), len(found) + count
    while at < end and len(found) < last:
        if message.startswith(DATA_BINARY8, at) and at + 4 < end:
            start = at + 5
            at = start + message[start - 1]
        elif message.startswith(DATA_BINARY32, at) and at + 7 < end:
            start = at + SECTION_BYTES
            at = start + int.from_bytes(message[start - 4 : start])
        else:
            code, value, after = section_at(message, at)
            if code == FOOTER and after == end:
                return end
            if code != DATA:
                raise WireError(f"{NAMES[code]} at byte {at} may not follow {NAMES[DATA]} in a batch")
            start, at = value + (2 if message[value] == 0xA0 else 5), after
        if at > end:
            raise WireError(f"the data section that ends at byte {at} is incomplete")
        found.append(message[start:at])
    return at


@dataclass(slots=True, eq=False)
class _Annotations:
    sizes: "array[int]" = field(default_factory=lambda: array("I"))
    formats: "array[int]" = field(default_factory=lambda: array("I"))
    resumes: bool = False
    codec: Value = None
    uncompressed: Value = None


def _annotations(message: bytes, at: int, end: int, events_max: int) -> _Annotations:
    """Read our delivery annotations; others are skipped. The work is bounded by ANNOTATIONS_MAX and
    `events_max`, whatever the size of the section.
    """
    found = _Annotations()
    count, at = map_entries(message, at, end)
    if count > 2 * ANNOTATIONS_MAX:
        raise WireError(f"a batch has at most {ANNOTATIONS_MAX} delivery annotations (got {count // 2})")
    for _ in range(count // 2):
        value_at = skip(message, at)
        name = _name(message, at, value_at)
        at = skip(message, value_at)
        if name == names.BATCH_SIZES:
            found.sizes = _numbers(message, value_at, at, events_max, 4)
        elif name == names.BATCH_MESSAGE_FORMATS:
            found.formats = _numbers(message, value_at, at, events_max, FORMAT_BYTES)
        elif name == names.BATCH_RESUMES:
            found.resumes = message[value_at:at] in _TRUES
        elif name == names.BATCH_COMPRESSION:
            found.codec = _short(message, value_at, at)
        elif name == names.BATCH_UNCOMPRESSED_SIZE:
            found.uncompressed = _short(message, value_at, at)
    if at != end:
        raise WireError(f"the annotations of a batch end at byte {at}, not at {end}")
    return found


def _name(message: bytes, at: int, end: int) -> str:
    """Return the text of a key; empty if it is not one of ours."""
    if end - at > _NAME_BYTES_MAX or message.find(_OURS, at, end) < 0:
        return ""
    key: Value = decode(message, at)[0]
    return str(key) if isinstance(key, str) else ""


def _short(message: bytes, at: int, end: int) -> Value:
    """Return a symbol or a number; false for a value that is too long to be one."""
    return decode(message, at)[0] if end - at <= _NAME_BYTES_MAX else False


def _numbers(message: bytes, at: int, end: int, events_max: int, width: int) -> "array[int]":
    """Return the items of an array of uint. `width`: the most bytes of the items of one event."""
    if end - at > _ARRAY_BYTES + width * events_max:
        raise _too_many(events_max)
    if message[at] == _ARRAY_CODE and (taken := read_array(message, at, end)) is not None:
        numbers = taken[0]
        if numbers.typecode != "I":
            raise WireError("the sizes and message-formats of a batch are arrays of uint")
        return numbers
    return numbers_of(decode(message, at)[0], "I")


def _too_many(events_max: int) -> TooManyEventsError:
    return TooManyEventsError(f"a batch has at most {events_max} events here: send smaller batches")
