"""Compressed batches in both directions: what was compressed is read; of other bytes the reader says
`WireError`, and never makes more bytes than its limit.
"""

from array import array
from typing import Final

from amqp_streams import names
from amqp_streams.errors import WireError
from amqp_streams.wire.batched.compression import CODECS, codec, compressed, decompressed
from amqp_streams.wire.batched.sends import read_sent_batch, write_sent_batch
from amqp_streams.wire.batches import read_batch, write_batch
from amqp_streams.wire.codec import Described, Symbol, UInt, ULong, Value, encode
from fuzz.draw import Draw
from fuzz.target import Target, WrongError

_EVENTS_MAX: Final = 100
_BYTES_MAX: Final = 16 << 10
_SIZES: Final = (0, 1, 100, 1000, _BYTES_MAX, _BYTES_MAX + 1, 1 << 20, (1 << 32) - 1)
_BOMBS: Final = {
    (name, size): codec(name).compress(bytes(size)) for name in CODECS for size in (1000, _BYTES_MAX, 4 << 20)
}


def run(data: bytes) -> str:
    """The first byte chooses: a frame, a message with a frame, or a written batch with changed bytes."""
    draw = Draw(data)
    match draw.byte() % 4:
        case 0:
            return _frame(draw)
        case 1:
            return _message(draw)
        case 2:
            return _sent(draw)
        case _:
            return _delivered(draw)


def _frame(draw: Draw) -> str:
    name, size = draw.pick(CODECS), draw.pick(_SIZES)
    frame = _changed(draw, _drawn_frame(draw))
    try:
        found = decompressed(frame, name, size, _BYTES_MAX)
    except WireError as error:
        return _text(error)
    if len(found) != size or size > _BYTES_MAX:
        message = f"{len(found)} bytes, {size} were announced, {_BYTES_MAX} are the limit"
        raise WrongError(message)
    return "frame"


def _drawn_frame(draw: Draw) -> bytes:
    if draw.chance(2):
        return draw.pick(tuple(_BOMBS.values()))
    return codec(draw.pick(CODECS)).compress(draw.raw(60) * draw.below(50))


def _message(draw: Draw) -> str:
    annotations: dict[Value, Value] = {
        Symbol(names.BATCH_COMPRESSION): draw.pick((Symbol("zstd"), Symbol("lz4"), Symbol("gzip"), None, 5)),
        Symbol(names.BATCH_UNCOMPRESSED_SIZE): draw.pick((UInt(draw.pick(_SIZES)), None, "many")),
    }
    message = encode(Described(ULong(0x71), annotations)) + encode(Described(ULong(0x75), _drawn_frame(draw)))
    return _read(_changed(draw, message))


def _sent(draw: Draw) -> str:
    count, used = 1 + draw.below(20), codec(draw.pick(CODECS))
    messages = [draw.raw(20) * 40 for _ in range(count)]
    batch = write_sent_batch(messages, resumes=draw.chance(2))
    written = compressed(batch, used)
    found = read_sent_batch(written, count, len(batch))
    if (found.messages, found.encoded) != (messages, batch):
        message = f"written {messages}, read {found}"
        raise WrongError(message)
    nested = write_sent_batch([written]) if draw.chance(3) else written
    return f"sent {_read(_changed(draw, compressed(nested, used)))}"


def _delivered(draw: Draw) -> str:
    count, used = 1 + draw.below(20), codec(draw.pick(CODECS))
    messages = [draw.raw(20) * 40 for _ in range(count)]
    batch = write_batch("3", array("Q", range(count)), array("q", range(count)), messages, next_offset=count)
    written = compressed(batch, used)
    found = read_batch(written, len(batch))
    if found.messages != messages or found.next_offset != count:
        message = f"written {messages}, read {found}"
        raise WrongError(message)
    return f"delivered {_read(_changed(draw, written))}"


def _changed(draw: Draw, written: bytes) -> bytes:
    changed = bytearray(written)
    for _ in range(draw.below(4)):
        place = draw.number(2) % (len(changed) + 1)
        changed[place : place + draw.below(5)] = draw.raw(5)
    return bytes(changed)


def _read(message: bytes) -> str:
    try:
        sent = f"{len(read_sent_batch(message, _EVENTS_MAX, _BYTES_MAX).messages)} events"
    except WireError as error:
        sent = _text(error)
    try:
        batch = read_batch(message, _BYTES_MAX)
    except WireError as error:
        return f"{sent} {_text(error)}"
    if sum(map(len, batch.messages)) > max(_BYTES_MAX, len(message)):
        message_ = f"{batch!r} has more than {_BYTES_MAX} bytes"
        raise WrongError(message_)
    return f"{sent} {len(batch.messages)} delivered"


def _text(error: WireError) -> str:
    return "".join("#" if character.isdigit() else character for character in str(error))[:40]


TARGET: Final = Target(
    "compression",
    run,
    seconds_max=0.2,
    words=(
        b"amqp-streams:compression",
        b"amqp-streams:uncompressed-size",
        b"\xa3\x04zstd",
        b"\xa3\x03lz4",
        b"\x28\xb5\x2f\xfd",
        b"\x04\x22\x4d\x18",
        b"\x00\x53\x75\xb0",
    ),
)
