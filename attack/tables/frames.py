"""Requests and performatives of AMQP as fast as they go. The rows are made from the product's own tables."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import proton

from amqp_streams import names
from amqp_streams.wire import frames
from amqp_streams.wire.types import Described, UInt, ULong
from attack import inventory
from attack.peer import Peer, from_earliest
from attack.report import Attack, Place, Table, expect, node_attack
from attack.room import Room
from attack.tables.kept import WIDE, wide_log

REQUESTS: Final = 100
"""As many of a link may wait."""
FRAMES: Final = 20_000
SMALL_FRAMES: Final = 1000
HANDLE: Final = 0


def _body(type_: str, operation: str) -> dict[str, Any]:
    """The largest body that a request may have."""
    if operation == names.EXTENTS:
        return {
            "logs": ["m-log"] + [f"m-{number}" for number in range(names.EXTENT_NAMES_MAX - 1)],
            "missing-ok": True,
        }
    if operation == "UPDATE":
        return {"retention-ms": 10**9} if type_ == names.LOG_TYPE else {"position": "@earliest"}
    return {"partitions": 4} if operation == "CREATE" else {}


def _requests(type_: str, operation: str) -> Callable[[Room], Iterator[str]]:
    """As many requests as may wait, without credit for answers; then they are all answered."""

    def run(room: Room) -> Iterator[str]:
        with wide_log(room), room.peer() as peer:
            answers, requests = peer.management()
            large = operation == names.EXTENTS
            count = 10 if large else REQUESTS
            message = proton.Message(
                body=_body(type_, operation),
                id=1,
                reply_to="answers",
                properties={
                    "operation": operation,
                    "type": type_,
                    "name": WIDE if operation == "READ" else "m-none",
                    "log": WIDE,
                },
            )
            encoded = message.encode()
            sent = 0
            deadline = time.monotonic() + 20
            while sent < count and time.monotonic() < deadline and not peer.is_gone:
                while requests.credit > 0 and sent < count:
                    sent += 1
                    requests.delivery(f"r{sent}")
                    requests.stream(encoded)
                    requests.advance()
                peer.pump(0.02)
            answers.flow(count)
            yield f"{sent} requests of {len(encoded)} bytes at once"
            peer.until(lambda: answers.current is not None, "no answer")
            expect(not peer.is_gone, "the connection is cut")

    return run


def _attaches(grant: str) -> Callable[[Room], Iterator[str]]:
    """Links of one kind, attached and detached as fast as it goes."""

    def run(room: Room) -> Iterator[str]:
        count = 40 if room.is_small else 500
        with room.peer() as peer:
            for number in range(count):
                link = _link(peer, grant, number)
                link.close()
                if number % 20 == 19:
                    peer.pump(0.01)
            for _ in range(10):
                peer.pump(0.02)
            expect(not peer.is_gone, "the connection is cut")
            yield f"{count} attaches and detaches"

    return run


def _link(peer: Peer, grant: str, number: int) -> Any:  # noqa: PLR0911  one row for each kind
    match grant:
        case "Consuming":
            return peer.receiver("m-log", credit=1, filters=from_earliest())
        case "Informing":
            return peer.receiver("m-log" + names.INFO_SUFFIX, credit=1)
        case "Kept":
            return peer.receiver(None, name=f"kept-{number}", prepare=_without_source)
        case "Managing":
            return peer.sender(names.MANAGEMENT)
        case "Pending":
            return peer.receiver("m-log", group="flood")
        case "Producing":
            return peer.sender("m-log")
        case "Relaying":
            return peer.sender(None)
        case "Replying":
            return peer.receiver(None, prepare=_dynamic)
        case _:
            message = f"no link is known for {grant}: a new kind of link needs one here"
            raise NotImplementedError(message)


def _without_source(link: Any) -> None:
    link.source.type = proton.Terminus.UNSPECIFIED


def _dynamic(link: Any) -> None:
    link.source.dynamic = True


def _performatives(name: str) -> Callable[[Room], Iterator[str]]:
    """One performative as fast as it goes, with fields that make work."""

    def run(room: Room) -> Iterator[str]:
        count = SMALL_FRAMES if room.is_small else FRAMES
        with room.peer() as peer:
            link = peer.sender("m-log")
            peer.until(lambda: link.credit > 0, "no credit")
            block = b"".join(_frame(name, number) for number in range(count))
            peer.raw(block)
            for _ in range(5):
                peer.pump(0.02)
            yield f"{count} frames: {'the connection is closed' if peer.is_gone else 'answered'}"

    return run


def _frame(name: str, number: int) -> bytes:
    fields: dict[str, Any]
    match name:
        case "open":
            fields = {"container-id": "again" + "x" * 200}
        case "begin":
            fields = {"next-outgoing-id": UInt(0), "incoming-window": UInt(1), "outgoing-window": UInt(1)}
            return frames.frame(1, frames.performative(name, fields)) + frames.frame(
                1, frames.performative("end", {})
            )
        case "attach":
            target = Described(ULong(0x29), ["m-log"])
            fields = {
                "name": f"a{number}",
                "handle": UInt(1),
                "role": False,
                "target": target,
                "initial-delivery-count": UInt(0),
            }
            return frames.frame(0, frames.performative(name, fields)) + frames.frame(
                0, frames.performative("detach", {"handle": UInt(1), "closed": True})
            )
        case "flow":
            fields = {
                "incoming-window": UInt(100),
                "next-outgoing-id": UInt(0),
                "outgoing-window": UInt(100),
                "handle": UInt(HANDLE),
                "delivery-count": UInt(0),
                "link-credit": UInt(0),
                "echo": True,
            }
        case "transfer":
            fields = {
                "handle": UInt(HANDLE),
                "delivery-id": UInt(number),
                "delivery-tag": b"%d" % number,
                "aborted": True,
            }
        case "disposition":
            fields = {"role": True, "first": UInt(0), "last": UInt(2**32 - 1), "settled": True}
        case "detach":
            fields = {"handle": UInt(HANDLE), "closed": True}
        case "end" | "close":
            fields = {}
        case _:
            message = f"no frame is known for {name}: a new performative needs one here"
            raise NotImplementedError(message)
    return frames.frame(0, frames.performative(name, fields))


def _tiny_frames(room: Room) -> Iterator[str]:
    """One message of which each frame has one byte: much work for few bytes, and nothing to answer."""
    count = SMALL_FRAMES if room.is_small else 20 * FRAMES
    with room.peer() as peer:
        link = peer.sender("m-log")
        peer.until(lambda: link.credit > 0, "no credit")
        fields = {"handle": UInt(HANDLE), "delivery-id": UInt(0), "delivery-tag": b"t", "more": True}
        frame = frames.frame(0, frames.performative("transfer", fields) + b"\x00")
        begin = time.monotonic()
        peer.raw(frame * count)
        peer.pump(0.1)
        yield f"{count} frames of one byte in {time.monotonic() - begin:.1f} s"


def _made() -> Iterator[Attack]:
    for entry in sorted(inventory.requests()):
        match entry.split(" "):
            case ["$management", type_, operation]:
                yield _attack(
                    f"requests of {operation} of {type_}",
                    "100 requests of a link",
                    entry,
                    _requests(type_, operation),
                )
            case ["attach", grant]:
                yield _attack(f"attaches of {grant} links", "limits.links", entry, _attaches(grant))
            case ["performative", name]:
                yield _attack(
                    f"a flood of {name} frames", "a turn of a connection", entry, _performatives(name)
                )
            case _:
                pass


def _attack(name: str, limit: str, entry: str, run: Callable[[Room], Iterator[str]]) -> Attack:
    return Attack(name, Table.PRODUCTS, Place.NODE, frozenset({entry}), limit, run)


ATTACKS: Final = (
    *_made(),
    node_attack(
        "a peer sends a message in frames of one byte",
        "a turn of a connection",
        _tiny_frames,
        "performative transfer",
        table=Table.PRODUCTS,
    ),
)
