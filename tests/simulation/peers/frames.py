"""The frames, messages and annotations that a simulated client writes and reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from amqp_streams import names
from amqp_streams.testing_amqp.script import SOURCE_FIELDS, TARGET_FIELDS
from amqp_streams.wire.batched.sends import write_sent_batch
from amqp_streams.wire.decoder import decode
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.frames import frame, performative
from amqp_streams.wire.layout import (
    APPLICATION_PROPERTIES_HEAD,
    DELIVERY_ANNOTATIONS,
    DELIVERY_ANNOTATIONS_HEAD,
    HEADER_HEAD,
    MESSAGE_ANNOTATIONS_HEAD,
    PROPERTIES_HEAD,
    sections,
)
from amqp_streams.wire.types import Described, Symbol, UInt, ULong, Value

UINT: Final = (1 << 32) - 1
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"
ACCEPTED: Final = Described(ULong(0x24), [])
REJECTED: Final = Described(ULong(0x25), [])
RELEASED: Final = Described(ULong(0x26), [])
OUTCOMES: Final = {0x24: "accepted", 0x25: "rejected", 0x26: "released", 0x27: "modified"}
_TRANSFER: Final = Struct(">I")
_DATA: Final = b"\x00\x53\x75\xb0"
_TERMINI: Final = {0x28: SOURCE_FIELDS, 0x29: TARGET_FIELDS}


def modified(*, failed: bool = True, undeliverable: bool = False) -> Described:
    """Return an outcome that requests the event again, or, with `undeliverable`, does not."""
    return Described(ULong(0x27), [failed, undeliverable])


def frame_of(name: str, payload: bytes = b"", /, **fields: Any) -> bytes:
    """A frame of channel 0; the fields by the standard's names, hyphens as underscores."""
    return frame(
        0, performative(name, {key.replace("_", "-"): value for key, value in fields.items()}) + payload
    )


def terminus(code: int, given: Mapping[str, Value]) -> Described:
    """A source (0x28) or target (0x29) with these fields."""
    values: list[Value] = [given.get(name) for name in _TERMINI[code]]
    while values and values[-1] is None:
        values.pop()
    return Described(ULong(code), values)


def transfer_frame(
    handle: int,
    number: int,
    payload: bytes,
    *,
    settled: bool = False,
    more: bool = False,
    aborted: bool = False,
    message_format: int = 0,
) -> bytes:
    """A transfer of delivery `number`; its tag is its number."""
    tail = b"\x41" if settled else b"\x42"
    tail += b"\x41" if more else b"\x42"
    if aborted:
        tail += b"\x40\x40\x40\x41"
    fields = (
        b"\x70"
        + _TRANSFER.pack(handle)
        + b"\x70"
        + _TRANSFER.pack(number)
        + b"\xa0\x04"
        + _TRANSFER.pack(number)
    )
    fields += (b"\x70" + _TRANSFER.pack(message_format) if message_format else b"\x43") + tail
    count = 10 if aborted else 6
    body = b"\x00\x53\x14\xc0" + bytes((len(fields) + 1, count)) + fields + payload
    return frame(0, body)


def disposition_frame(
    *, receiver: bool, first: int, last: int, settled: bool, state: Described | None
) -> bytes:
    """Return the disposition of deliveries from `first` to `last`."""
    return frame_of(
        "disposition",
        role=receiver,
        first=UInt(first),
        last=UInt(last),
        settled=settled,
        state=state,
    )


def message_of(
    key: str,
    *,
    properties: dict[str, Value],
    padding: int,
    header: bool = False,
    group_key: str | None = None,
    to: str | None = None,
) -> bytes:
    """The message of an event: its body begins with its key."""
    body = key.encode() + b"\x00" + b"x" * padding
    parts = [b"\x00\x53\x70\xc0\x02\x01\x41"] if header else []
    if group_key is not None:
        parts.append(MESSAGE_ANNOTATIONS_HEAD + encode({Symbol(names.GROUP_KEY): group_key}))
    if to is not None:
        parts.append(PROPERTIES_HEAD + encode([None, None, to]))
    if properties:
        parts.append(APPLICATION_PROPERTIES_HEAD + encode(properties))
    parts.append(data_section(body))
    return b"".join(parts)


def with_annotations(message: bytes, annotations: dict[str, object]) -> bytes:
    """The message with delivery annotations, as a producer sends it."""
    entries = {Symbol(key): value for key, value in annotations.items() if value is not None}
    if not entries:
        return message
    section = DELIVERY_ANNOTATIONS_HEAD + encode(entries)
    if message.startswith(HEADER_HEAD):
        head = sections(message)[0].end
        return message[:head] + section + message[head:]
    return section + message


def batch_of(messages: Sequence[bytes], *, sizes: bool, resumes: bool = False) -> bytes:
    """The batch that a producer sends. `sizes`: in the form that the node reads fastest."""
    if sizes:
        return write_sent_batch(messages, resumes=resumes)
    head = DELIVERY_ANNOTATIONS_HEAD + encode({Symbol(names.BATCH_RESUMES): True}) if resumes else b""
    return head + b"".join(map(data_section, messages))


def data_section(content: bytes) -> bytes:
    """A data section with this content."""
    return _DATA + _TRANSFER.pack(len(content)) + content


def key_of(message: bytes) -> str:
    """The key of a stored message."""
    at = message.rfind(_DATA)
    end = message.find(b"\x00", at + 8)
    return message[at + 8 : end].decode()


def without_header(message: bytes) -> bytes:
    """The message behind its header section."""
    return message[sections(message)[0].end :] if message.startswith(HEADER_HEAD) else message


@dataclass(frozen=True, slots=True)
class Event:
    """A delivered event.

    `message`: without the node's annotations. `skipped`: events that retention removed before.
    """

    partition: int
    offset: int
    timestamp_ms: int
    message: bytes
    skipped: int
    key: str


def read_event(raw: bytes) -> Event:
    """Return the contents of a delivery on an ordinary link."""
    for section in sections(raw):
        if section.code == DELIVERY_ANNOTATIONS:
            described, _ = decode(raw, section.start)
            assert isinstance(described, Described)
            assert isinstance(described.value, dict)
            found: dict[str, Any] = {str(key): value for key, value in described.value.items()}
            message = raw[: section.start] + raw[section.end :]
            return Event(
                int(str(found[names.SOURCE_PARTITION])),
                int(str(found[names.OFFSET])),
                int(found[names.TIMESTAMP]),
                message,
                int(found.get(names.EVENTS_SKIPPED) or 0),
                key_of(message),
            )
    raise AssertionError("a delivery has delivery annotations")


def condition_of(fields: Mapping[str, Any]) -> str | None:
    """The condition of the error in a detach, end or close."""
    error = fields.get("error")
    return None if error is None else str(error.value[0])


def description_of(fields: Mapping[str, Any]) -> str:
    """The text of that error."""
    error = fields.get("error")
    return "" if error is None else str(error.value[1])


def error_of(values: Any) -> tuple[str | None, dict[str, Any]]:
    """The condition and the info of the error of a rejection."""
    if not values or values[0] is None:
        return None, {}
    error = [*values[0].value, None, None, None]
    return str(error[0]), {str(key): value for key, value in (error[2] or {}).items()}
