"""Frames and the performatives in them. Spec: AMQP 1.0, 2.3 and 2.7.

    size       4 bytes, big-endian: of the whole frame
    doff       1 byte: where the body begins, in words of 4 bytes
    type       1 byte: 0 AMQP, 1 SASL
    channel    2 bytes, big-endian
    body

Proton reads and writes the frames of a connection. This module is for the things that Proton does not do: it
reads the `echo` of a flow, writes a flow between Proton's frames, and shows frames to tests and tools.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from amqp_streams.errors import WireError
from amqp_streams.wire.decoder import decode, skip
from amqp_streams.wire.encoder import encode, encode_list
from amqp_streams.wire.types import Described, Symbol, UInt, ULong, Value

AMQP: Final = 0
SASL: Final = 1
HEADER_SIZE: Final = 8
FLOW_SIZE_MAX: Final = 512
"""The most bytes of a flow that two blocks of received bytes can share. A longer flow, which needs long
properties, is not found if a block ends inside it, and gets no echo.
"""

_HEADER: Final = struct.Struct(">IBBH")
_FLOW: Final = b"\x00\x53\x13"
_ATTACH: Final = b"\x00\x53\x12"
_HANDLE_FIELD: Final = 4
_CREDIT_FIELD: Final = 6
_CREDIT_MAX: Final = (1 << 31) - 1
_ECHO_FIELD: Final = 9
# The most bytes 0x13 of a block that are examined one by one. Random bytes have 1,024 in a block of 256 KiB.
_SCAN_CANDIDATES_MAX: Final = 2000
_UINT_MAX: Final = (1 << 32) - 1

FIELDS: Final[Mapping[int, tuple[str, ...]]] = {
    code: tuple(fields.split())
    for code, fields in {
        0x10: (
            """container-id hostname max-frame-size channel-max idle-time-out outgoing-locales
            incoming-locales offered-capabilities desired-capabilities properties"""
        ),
        0x11: (
            """remote-channel next-outgoing-id incoming-window outgoing-window handle-max
            offered-capabilities desired-capabilities properties"""
        ),
        0x12: (
            """name handle role snd-settle-mode rcv-settle-mode source target unsettled
            incomplete-unsettled initial-delivery-count max-message-size offered-capabilities
            desired-capabilities properties"""
        ),
        0x13: (
            """next-incoming-id incoming-window next-outgoing-id outgoing-window handle delivery-count
            link-credit available drain echo properties"""
        ),
        0x14: (
            "handle delivery-id delivery-tag message-format settled more rcv-settle-mode state resume aborted"
            " batchable"
        ),
        0x15: "role first last settled state batchable",
        0x16: "handle closed error",
        0x17: "error",
        0x18: "error",
    }.items()
}
"""The fields of each performative by its code, in the order of the standard."""

NAMES: Final = {
    0x10: "open",
    0x11: "begin",
    0x12: "attach",
    0x13: "flow",
    0x14: "transfer",
    0x15: "disposition",
    0x16: "detach",
    0x17: "end",
    0x18: "close",
}


class Frame(NamedTuple):
    """One frame; an empty `body` is a heartbeat."""

    type: int
    channel: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Performative:
    """The decoded body of a frame.

    `fields`: by the standard's names; None for absent fields. `payload`: the bytes after the performative,
    which only a transfer has.
    """

    name: str
    fields: Mapping[str, Value]
    payload: bytes


@dataclass(frozen=True, slots=True)
class Echo:
    """A flow that Proton does not handle completely. `handle` None: a flow of the session, not of a link.

    `echo`: the peer asks for a flow in return. `excess`: the flow grants more credit than Proton can count.
    """

    channel: int
    handle: int | None
    echo: bool = True
    excess: bool = False


def frame(channel: int, body: bytes, *, type: int = AMQP) -> bytes:  # noqa: A002  the standard's word
    """Return a frame: a header of 8 bytes, then `body`."""
    return _HEADER.pack(HEADER_SIZE + len(body), HEADER_SIZE // 4, type, channel) + body


def read_frame(data: bytes, at: int = 0, *, size_max: int = _UINT_MAX) -> tuple[Frame, int] | None:
    """Return the frame at byte `at`, and where the next frame begins; None while the frame is incomplete.

    Raises:
        WireError: the size or the data offset is not valid, or the frame is larger than `size_max` bytes.
    """
    # The size itself may still be incomplete.
    if len(data) - at < HEADER_SIZE:
        return None
    size, offset, kind, channel = _HEADER.unpack_from(data, at)
    begin = 4 * offset
    # A size of less than the header would let a reader stand still, and a data offset beyond the frame would
    # skip into the next.
    if not HEADER_SIZE <= begin <= size:
        message = f"the frame at byte {at} has size {size} and data offset {begin}, which is not valid"
        raise WireError(message)
    # Before the frame is complete: a peer must not make us wait for a size that is refused anyway.
    if size > size_max:
        message = f"the frame has {size} bytes; at most {size_max} are allowed"
        raise WireError(message)
    if len(data) - at < size:
        return None
    return Frame(kind, channel, data[at + begin : at + size]), at + size


def read_frames(data: bytes) -> Iterator[Frame]:
    """Return the complete frames of `data`, for tests and tools. Raises WireError as `read_frame`."""
    at = 0
    while (found := read_frame(data, at)) is not None:
        frame_found, at = found
        yield frame_found


def read_performative(body: bytes) -> Performative:
    """Decode the body of a frame. Fields after those that the standard defines are ignored.

    Raises:
        WireError: the body is not a performative.
    """
    described, end = decode(body)
    if not isinstance(described, Described) or not isinstance(described.value, list):
        message = "the body of the frame is not a described list"
        raise WireError(message)
    code = described.descriptor
    if not isinstance(code, ULong) or int(code) not in FIELDS:
        message = f"{code!r} is not the descriptor of a performative"
        raise WireError(message)
    names = FIELDS[int(code)]
    values = [*described.value, *[None] * len(names)]
    return Performative(NAMES[int(code)], dict(zip(names, values, strict=False)), body[end:])


def performative(name: str, fields: Mapping[str, object]) -> bytes:
    """Return the body of a frame.

    `fields`: by the standard's names, with the standard's types (`UInt`, `Symbol`, …).
    """
    code = next(code for code, known in NAMES.items() if known == name)
    unknown = fields.keys() - set(FIELDS[code])
    assert not unknown, unknown
    return b"\x00" + encode(ULong(code)) + encode_list([fields.get(field) for field in FIELDS[code]])


def flow_frame(
    channel: int,
    *,
    next_incoming_id: int | None,
    incoming_window: int,
    next_outgoing_id: int,
    outgoing_window: int,
    handle: int | None = None,
    delivery_count: int | None = None,
    link_credit: int | None = None,
    available: int | None = None,
    drain: bool = False,
    echo: bool = False,
    properties: Mapping[str, object] | None = None,
) -> bytes:
    """Return a frame with a flow: of a link if `handle` is given, otherwise of the session."""
    numbers = (
        next_incoming_id,
        incoming_window,
        next_outgoing_id,
        outgoing_window,
        handle,
        delivery_count,
        link_credit,
        available,
    )
    fields: list[object] = [None if number is None else UInt(number) for number in numbers]
    # False is the default of both fields: absent, they cost no byte.
    fields += [drain or None, echo or None]
    fields.append({Symbol(key): value for key, value in properties.items()} if properties else None)
    return frame(channel, _FLOW + encode_list(fields))


def attach_handle(body: bytes) -> int | None:
    """Return the handle in the body of an attach; None if the body is not that of an attach."""
    if body[:3] != _ATTACH or body[3:4] not in (b"\xc0", b"\xd0"):
        return None
    fields = 6 if body[3] == 0xC0 else 12
    try:
        handle, _ = decode(body, skip(body, fields))
    except (WireError, IndexError):
        # Proton reads the same frame, and reports the error.
        return None
    return int(handle) if isinstance(handle, UInt) else None


def find_echoes(block: bytes) -> list[Echo]:
    """Return the flows in a block of received bytes that Proton does not handle completely.

    They ask for an echo, or grant more credit than Proton can count. Never raises.

    The function searches for the bytes of a flow instead of reading frame by frame, because it sees all
    received bytes. Bytes of a message can look like a flow. Then the peer that sent them gets a flow that it
    did not ask for, which does no harm. A flow that is not complete is not found: see `EchoFinder`.
    """
    echoes: list[Echo] = []
    at = block.find(b"\x13")
    # A search for one byte is many times faster than one for three, unless the block is full of that byte.
    for _ in range(_SCAN_CANDIDATES_MAX):
        if at < 0:
            return echoes
        if block[at - 1] == 0x53 and block[at - 2] == 0 and (echo := _echo(block, at - 2)) is not None:
            echoes.append(echo)
        at = block.find(b"\x13", at + 1)
    # The block is full of this byte: from here on, the search for three bytes is faster.
    at = block.find(_FLOW, max(at - 2, 0)) if at >= 0 else -1
    while at >= 0:
        if (echo := _echo(block, at)) is not None:
            echoes.append(echo)
        at = block.find(_FLOW, at + 3)
    return echoes


class EchoFinder:
    """`find_echoes` for the successive blocks of a connection.

    It also finds flows that continue in the next block. Each flow is found once.
    """

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, block: bytes) -> list[Echo]:
        """Return the flows that end in this block."""
        tail = self._tail
        if tail:
            # A flow that crosses the boundary has at most FLOW_SIZE_MAX bytes on each side.
            seam = tail + block[:FLOW_SIZE_MAX]
            echoes = _across(seam, len(tail)) + find_echoes(block)
            self._tail = block[-FLOW_SIZE_MAX:] if len(block) >= FLOW_SIZE_MAX else seam[-FLOW_SIZE_MAX:]
            return echoes
        self._tail = block[-FLOW_SIZE_MAX:]
        return find_echoes(block)

    def skip(self, end: bytes) -> None:
        """Skip a block in which no flow ends.

        `end`: the last FLOW_SIZE_MAX bytes of the block, or all bytes of a shorter one.
        """
        self._tail = (self._tail + end)[-FLOW_SIZE_MAX:]


def _across(seam: bytes, boundary: int) -> list[Echo]:
    """Return the flows that begin before `boundary` and end after it."""
    echoes: list[Echo] = []
    # A flow that begins later lies in the new block and is found there. Finding it twice would answer it
    # twice.
    search_end = boundary + HEADER_SIZE + len(_FLOW) - 1
    at = seam.find(_FLOW, 0, search_end)
    while at >= 0:
        # A flow that ends before the boundary was found with the block before.
        if _frame_end(seam, at) > boundary and (echo := _echo(seam, at)) is not None:
            echoes.append(echo)
        at = seam.find(_FLOW, at + 1, search_end)
    return echoes


def _frame_end(block: bytes, at: int) -> int:
    """Return the end of the frame whose body begins at byte `at`.

    0 if the bytes before `at` are not the header of an AMQP frame, or not in the block.
    """
    start = at - HEADER_SIZE
    # Cheap, and excludes nearly all message content that looks like a flow.
    if start < 0 or block[start + 4 : start + 6] != b"\x02\x00":
        return 0
    return start + int.from_bytes(block[start : start + 4])


def _echo(block: bytes, at: int) -> Echo | None:
    """Decode the flow at byte `at`.

    Returns None if it is not a flow, is incomplete, or Proton handles all of it.
    """

    if not at + len(_FLOW) < _frame_end(block, at) <= len(block):
        return None
    try:
        if block[at + 3] == 0xC0:
            count, field = block[at + 5], at + 6
        elif block[at + 3] == 0xD0:
            count, field = int.from_bytes(block[at + 8 : at + 12]), at + 12
        else:
            return None
        # Neither credit nor echo is in the list.
        if count <= _CREDIT_FIELD:
            return None
        for _ in range(_HANDLE_FIELD):
            field = skip(block, field)
        handle, field = decode(block, field)
        credit, field = decode(block, skip(block, field))
        echo: object = None
        if count > _ECHO_FIELD:
            for _ in range(_CREDIT_FIELD + 1, _ECHO_FIELD):
                field = skip(block, field)
            echo, _ = decode(block, field)
    except (WireError, IndexError):
        # Bytes of a message that look like a flow, or a frame that Proton refuses.
        return None
    excess = isinstance(credit, UInt) and int(credit) > _CREDIT_MAX
    if not (echo is True or excess) or not isinstance(handle, UInt | None):
        return None
    return Echo(
        int.from_bytes(block[at - 2 : at]), None if handle is None else int(handle), echo is True, excess
    )
