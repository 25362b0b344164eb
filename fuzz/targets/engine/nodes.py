"""Frames, reports and answers of another node: only `FrameError` and `RefusedError` are answers.

What is read is read again as the same after it was written. Bytes without the secret never make a node.
"""

import json
from collections.abc import Callable, Iterator
from typing import Final

from amqp_streams.homes.messages import Answer, Ends, Identity, Leaves, Report
from amqp_streams.homes.protocol import answers, reports
from amqp_streams.homes.protocol.dialogue import NONCE_BYTES, Dialogue, RefusedError, Role
from amqp_streams.homes.protocol.frames import FRAME_BYTES_MAX, Frame, FrameError, Kind, Splitter
from fuzz.draw import Draw
from fuzz.target import Target, WrongError

_ME: Final = Identity("me", "cluster", "prefix")
_PARTS_MAX: Final = 6
_LEAVES: Final[tuple[object, ...]] = (
    None, True, False, 0, 1, -1, 15, 2**31, 2**63 - 1, 2**63, 2**64, 1.5, "", "owns", "leaves", "ends",
    "stored", "\ud800", "ä" * 300, [], {}, [0, 1], [[0, 1]], [[0, 1], [2]], float("nan"),
)  # fmt: skip
_LINK: Final = (
    "number", "wanted", "serial", "partition", "epoch", "positions", "stored", "urgent", "leaving", "gone",
)  # fmt: skip
_WANTED: Final = ("log", "user", "container", "link", "claim", "durable", "starts", "partitions")
_CLAIM: Final = ("group", "member", "partition", "epoch")
_VERDICT: Final = (
    "kind", "number", "serial", "partition", "epoch", "positions", "condition", "description", "info",
    "within_ms",
)  # fmt: skip
_HELLO: Final = ("version", "role", "process", "cluster", "prefix", "nonce")


def run(data: bytes) -> str:
    """A stream that is cut anywhere, a dialogue, or the parts of a report or an answer."""
    draw = Draw(data)
    match draw.byte() % 4:
        case 0:
            return _stream(draw)
        case 1:
            return _dialogue(draw)
        case 2:
            return _read(_report_bodies(draw), reports.Reports().take, _report_again)
        case _:
            return _read(_answer_bodies(draw), answers.Answers().take, _answer_again)


def _stream(draw: Draw) -> str:
    """The frames are the same in one piece and in many."""
    sizes = [1 + draw.below(40) for _ in range(draw.below(8))]
    made = [(1 + len(body)).to_bytes(4) + bytes([draw.below(8)]) + body for body in _bodies(draw)]
    data = b"".join(made) + draw.rest()
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    whole, cut = _frames([data]), _frames([*pieces, data[at:]])
    if whole != cut:
        message = f"whole {whole}, in parts {cut}"
        raise WrongError(message)
    return f"{len(whole)} frames"


def _bodies(draw: Draw) -> Iterator[bytes]:
    for _ in range(draw.below(5)):
        yield draw.raw(30)


def _frames(pieces: list[bytes]) -> list[Frame | str]:
    splitter, found = Splitter(), list[Frame | str]()
    splitter.bytes_max = FRAME_BYTES_MAX
    try:
        for piece in pieces:
            splitter.feed(piece)
            found += iter(splitter.next, None)
    except FrameError as error:
        found.append(str(error))
    return found


def _dialogue(draw: Draw) -> str:
    role = draw.pick(tuple(Role))
    ours = Dialogue(role, _ME, (b"s" * 32,), bytes(NONCE_BYTES), certificate=draw.raw(2))
    sent = [*ours.begin()]
    try:
        for _ in range(1 + draw.below(4)):
            body = (
                sent[-1][5:] if sent and draw.chance(4) else _hello(draw) if draw.chance(2) else draw.raw(80)
            )
            sent += ours.take(Frame(draw.pick((*Kind, 99)), body))
    except (FrameError, RefusedError) as error:
        return str(error)[:20]
    finally:
        if ours.done:
            message = "it took bytes without the secret for a node"
            raise WrongError(message)
    return f"{len(sent)} frames"


def _hello(draw: Draw) -> bytes:
    made: dict[str, object] = {
        "version": 1, "role": draw.pick(tuple(Role)), "process": "other", "cluster": "cluster",
        "prefix": "prefix", "nonce": "0" * 2 * NONCE_BYTES,
    }  # fmt: skip
    if draw.chance(3):
        made[draw.pick(_HELLO)] = draw.pick(_LEAVES)
    return json.dumps(made).encode()


def _report_bodies(draw: Draw) -> Iterator[bytes]:
    for part in range(1 + draw.below(_PARTS_MAX)):
        links = [_object(draw, _LINK, _link) for _ in range(draw.below(4))]
        yield _body(draw, {"node": "n", "bucket": 1, "term": 2, "number": 3, "links": links}, part)


def _answer_bodies(draw: Draw) -> Iterator[bytes]:
    for part in range(1 + draw.below(_PARTS_MAX)):
        verdicts = [_object(draw, _VERDICT, _verdict) for _ in range(draw.below(4))]
        head: dict[str, object] = {"bucket": 1, "term": 2, "number": 3, "remaining_ms": 4}
        yield _body(draw, {**head, "verdicts": verdicts}, part)


def _body(draw: Draw, fields: dict[str, object], part: int) -> bytes:
    if draw.chance(30):
        return draw.raw(200)
    if part:
        fields["part"] = part
    fields["more"] = not draw.chance(3)
    if draw.chance(6):
        fields[draw.pick(tuple(fields))] = draw.pick(_LEAVES)
    return json.dumps(fields).encode()


def _object(draw: Draw, names: tuple[str, ...], good: Callable[[Draw], dict[str, object]]) -> object:
    made = good(draw)
    if draw.chance(4):
        made[draw.pick(names)] = draw.pick(_LEAVES)
    return draw.pick(_LEAVES) if draw.chance(40) else made


def _link(draw: Draw) -> dict[str, object]:
    claim: dict[str, object] = {"group": draw.text(5), "member": "m"}
    wanted: dict[str, object] = {
        "log": "l",
        "container": draw.text(5),
        "link": "",
        "starts": [draw.number(2)],
    }
    if draw.chance(2):
        wanted["claim"] = claim
    for into, names in ((wanted, _WANTED), (claim, _CLAIM)):
        if draw.chance(8):
            into[draw.pick(names)] = draw.pick(_LEAVES)
    return {"number": draw.number(1), "wanted": wanted, "serial": [1, draw.number(8)]}


def _verdict(draw: Draw) -> dict[str, object]:
    return {
        "kind": draw.pick(("owns", "leaves", "ends", "stored")), "number": draw.number(1), "serial": [1, 2],
        "positions": [[0, draw.number(8)]], "condition": "amqp:not-found", "description": draw.text(20),
        "within_ms": draw.number(4),
    }  # fmt: skip


def _read(
    bodies: Iterator[bytes],
    take: Callable[[bytes], Report | Answer | None],
    again: Callable[[object], object],
) -> str:
    seen = []
    try:
        for body in bodies:
            found = take(body)
            if found is None:
                continue
            if again(found) != _plain(found):
                message = f"{found} was written and read as {again(found)}"
                raise WrongError(message)
            seen.append("whole")
    except FrameError as error:
        if not str(error).isascii() or len(str(error)) > 400:
            message = f"an error shows too much: {error!a}"
            raise WrongError(message) from error
        seen.append(str(error)[:24])
    return ",".join(seen)


def _report_again(found: object) -> object:
    assert isinstance(found, Report)
    taker = reports.Reports()
    return _plain([taker.take(body) for body in reports.parts(found)][-1])


def _answer_again(found: object) -> object:
    assert isinstance(found, Answer)
    taker = answers.Answers()
    return _plain([taker.take(body) for body in answers.parts(found)][-1])


def _plain(found: object) -> object:
    """Errors are equal only to themselves: as texts."""
    if not isinstance(found, Answer):
        return found
    errors = [
        (str(each.error), each.error.info) if isinstance(each, Ends | Leaves) else each
        for each in found.verdicts
    ]
    return found.bucket, found.term, found.number, found.processed, found.remaining_ms, errors


TARGET: Final = Target(
    "nodes", run, seconds_max=0.5, words=(b"\x00\x00\x00\x02\x01{}", b'{"', b'":', b"[", b"\x00\x00\x10\x01")
)
