"""Batches in both directions, and the message-formats of transfers: what was written is read; of other bytes
the reader says `WireError`, and the same however the blocks of a connection are cut.
"""

from array import array
from typing import Final

from amqp_streams.errors import WireError
from amqp_streams.proton.incoming import plainness
from amqp_streams.testing_amqp.script import AMQP_HEADER, frame_of
from amqp_streams.wire.batched import sends
from amqp_streams.wire.batched.sends import read_sent_batch, write_sent_batch
from amqp_streams.wire.batches import BATCH_OVERHEAD_BYTES, EVENT_BYTES, FORMAT_BYTES, read_batch, write_batch
from amqp_streams.wire.formats import FormatFinder
from amqp_streams.wire.types import UInt
from fuzz.draw import Draw
from fuzz.target import Target, WrongError

_FORMATS: Final = (0, 0, 0, 1, 0x80013700, (1 << 32) - 1)
_EVENTS_MAX: Final = 100
_STAMPS: Final = (0, 5, 1_700_000_000_000, (1 << 63) - 1, -1)


def run(data: bytes) -> str:
    """The first byte chooses: a batch, a batch with changed bytes, transfers, or the same for batches that
    producers send.
    """
    draw = Draw(data)
    match draw.byte() % 7:
        case 0:
            return _read(draw.rest())
        case 1 | 2:
            return _batch(draw)
        case 3:
            return _transfers(draw)
        case 4:
            return _read_sent(draw.rest())
        case _:
            return _sent(draw)


def _batch(draw: Draw) -> str:
    count = draw.below(6)
    same = draw.raw(9) if draw.chance(3) else None
    messages = [draw.raw(40) if same is None else same for _ in range(count)]
    offsets, at = array("Q"), draw.number(4)
    for _ in range(count):
        at += 1 + draw.below(9)
        offsets.append(at)
    stamps = array("q", [draw.pick(_STAMPS) for _ in range(count)])
    formats = {index: number for index in range(count) if (number := draw.pick(_FORMATS))}
    written = write_batch(
        "7", offsets, stamps, messages, next_offset=at + 1, extra={"x": draw.number(2)}, formats=formats
    )
    size = sum(map(len, messages)) + count * EVENT_BYTES + len(formats) * FORMAT_BYTES + BATCH_OVERHEAD_BYTES
    if len(written) > size:
        message = f"{len(written)} bytes, {size} were announced"
        raise WrongError(message)
    batch = read_batch(written)
    found = (
        batch.partition,
        batch.offsets,
        batch.timestamps_ms,
        batch.messages,
        batch.next_offset,
        batch.formats,
    )
    if found != ("7", offsets, stamps, messages, at + 1, formats):
        message = f"written {offsets}, {stamps}, {messages}, {formats}, read {found}"
        raise WrongError(message)
    changed = bytearray(written)
    for _ in range(1 + draw.below(4)):
        place = draw.number(2) % (len(changed) + 1)
        changed[place : place + draw.below(5)] = draw.raw(5)
    return f"{count} {len(formats)} {_read(bytes(changed))}"


def _read(message: bytes) -> str:
    try:
        batch = read_batch(message)
    except WireError as error:
        return "".join("#" if character.isdigit() else character for character in str(error))[:40]
    if not len(batch.offsets) == len(batch.timestamps_ms) == len(batch.messages):
        message_ = f"{batch!r} has columns of different lengths"
        raise WrongError(message_)
    if any(type(each) is not bytes for each in batch.messages):
        message_ = f"{batch!r} has messages that are not bytes"
        raise WrongError(message_)
    return f"read {len(batch.messages)}"


def _sent(draw: Draw) -> str:
    count = 1 + draw.below(6)
    same = draw.raw(9) if draw.chance(3) else None
    messages = [draw.raw(40) if same is None else same for _ in range(count)]
    formats = {index: number for index in range(count) if (number := draw.pick(_FORMATS))}
    resumes = draw.chance(2)
    written = write_sent_batch(messages, formats, resumes=resumes)
    most = count * sends.EVENT_BYTES + len(formats) * sends.FORMAT_BYTES + sends.BATCH_OVERHEAD_BYTES
    if len(written) > sum(map(len, messages)) + most:
        message = f"{len(written)} bytes, {most} more than those of the events were announced"
        raise WrongError(message)
    batch = read_sent_batch(written, count)
    if (batch.messages, batch.formats, batch.resumes) != (messages, formats, resumes):
        message = f"written {messages}, {formats}, {resumes}, read {batch}"
        raise WrongError(message)
    changed = bytearray(written)
    for _ in range(1 + draw.below(4)):
        place = draw.number(2) % (len(changed) + 1)
        changed[place : place + draw.below(5)] = draw.raw(5)
    return f"sent {count} {len(formats)} {_read_sent(bytes(changed))}"


def _read_sent(message: bytes) -> str:
    try:
        batch = read_sent_batch(message, _EVENTS_MAX)
    except WireError as error:
        return "".join("#" if character.isdigit() else character for character in str(error))[:40]
    if not 0 < len(batch.messages) <= _EVENTS_MAX or any(type(each) is not bytes for each in batch.messages):
        message_ = f"{batch!r} has no events, too many, or events that are not bytes"
        raise WrongError(message_)
    if sum(map(len, batch.messages)) > len(message) or any(
        index >= len(batch.messages) for index in batch.formats
    ):
        message_ = f"{batch!r} has more than its {len(message)} bytes"
        raise WrongError(message_)
    return f"read {len(batch.messages)}"


def _transfers(draw: Draw) -> str:
    """Transfers of one link, in blocks of any size: each delivery has the format that its first
    transfer says.
    """
    frames, expected, tags = [AMQP_HEADER], list[int](), list[bytes]()
    for number in range(draw.below(8)):
        format_ = draw.pick(_FORMATS)
        tag = number.to_bytes(1 + draw.below(31))
        more = draw.chance(3)
        body = draw.raw(30)
        frames.append(_transfer(number, tag, format_, body, more=more))
        if more:
            frames.append(_transfer(number, None, None, draw.raw(30), more=False))
        expected.append(format_)
        tags.append(tag)
    block = b"".join(frames)
    ends = [0]
    for each in frames:
        ends.append(ends[-1] + len(each))
    # The compiled search of blocks, if it is installed, or the regular expression alone.
    finder, at = FormatFinder(plainness if draw.chance(2) else None), 0
    longest = draw.pick((90, 900))
    while at < len(block):
        size = 1 + draw.below(longest)
        piece = block[at : at + size]
        at += len(piece)
        complete = max(end for end in ends if end <= at)
        left = at - complete if complete else at - len(AMQP_HEADER)
        finder.feed(piece, left)
        finder.release()
    found = finder.take((0, 0), tags, None) or [0] * len(tags)
    if found != expected:
        message = f"formats {found}, sent were {expected}"
        raise WrongError(message)
    return f"{len(tags)} transfers, {len(set(expected))} formats"


def _transfer(number: int, tag: bytes | None, format_: int | None, body: bytes, *, more: bool) -> bytes:
    performative = frame_of(
        "transfer",
        handle=UInt(0),
        delivery_id=UInt(number),
        delivery_tag=tag,
        message_format=None if format_ is None else UInt(format_),
        more=more,
    )
    made = bytearray(performative + body)
    made[:4] = len(made).to_bytes(4)
    return bytes(made)


TARGET: Final = Target(
    "batches",
    run,
    seconds_max=0.2,
    words=(
        b"amqp-streams:sizes",
        b"\x00\x53\x71\xd1",
        b"\x00\x53\x75\xb0",
        b"\xf0\x00\x00\x00",
        b"\x00\x53\x14\xc0",
    ),
)
