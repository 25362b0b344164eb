"""Bytes that should be frames: ours to read where the engine shows too little.

Only `WireError` is an answer.
"""

from collections import Counter
from typing import Final

from amqp_streams.errors import WireError
from amqp_streams.wire.frames import Echo, EchoFinder, find_echoes, read_frame, read_frames, read_performative
from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from fuzz.targets.engine.speech import flows, frames_of


def run(data: bytes) -> str:
    """One block of frames, made of choices or as it is; of flows of ours, cut anywhere, each echo is found
    once.
    """
    draw = Draw(data)
    match draw.byte() % 3:
        case 0:
            return _cut(draw)
        case 1:
            block = draw.rest()
        case _:
            block = b"".join(frames_of(draw))
    find_echoes(block)
    return f"{_read(block)} {_performatives(block)}"


def _cut(draw: Draw) -> str:
    block = b"".join(flows(draw))
    finder, found, at = EchoFinder(), Counter[Echo](), 0
    while at < len(block):
        size = 1 + draw.below(80)
        found.update(finder.feed(block[at : at + size]))
        at += size
    if found != Counter(find_echoes(block)):
        message = f"whole {find_echoes(block)}, in parts {dict(found)}"
        raise WrongError(message)
    return f"{found.total()} echoes"


def _read(block: bytes) -> str:
    try:
        return f"{sum(1 for _ in read_frames(block))} frames"
    except WireError as error:
        return str(error)[:12]


def _performatives(block: bytes) -> str:
    at, seen = 0, []
    try:
        while (one := read_frame(block, at, size_max=1 << 20)) is not None:
            frame, at = one
            seen.append(read_performative(frame.body).name if frame.body else "-")
    except WireError as error:
        seen.append(str(error)[:12])
    return ",".join(seen[:4])


TARGET: Final = Target(
    "frames",
    run,
    seconds_max=0.5,
    words=(b"\x00\x00\x00\x08\x02\x00\x00\x00", b"\x00\x53\x13", b"\x00\x53\x14", b"\xc0"),
)
