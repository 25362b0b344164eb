"""Batched sends: small on the wire, much work or memory for the node."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Final

from amqp_streams import names
from amqp_streams.wire import frames
from amqp_streams.wire.batched.compression import codec, compressed
from amqp_streams.wire.batched.sends import write_sent_batch
from amqp_streams.wire.codec import encode
from amqp_streams.wire.types import Symbol, UInt
from attack.peer import Peer
from attack.report import Table, expect, node_attack
from attack.room import Room
from attack.tables.links import LOG, refused


def _batch_events(room: Room) -> Iterator[str]:
    """Batches of as many of the smallest events as may be, at once, and then one with an event more."""
    with room.peer() as peer:
        link = peer.sender(LOG)
        peer.until(lambda: link.credit > 0, "no credit")
        most = min(room.limits.batch_events, 10_000)
        event = b"\x00\x53\x75\xa0\x04\x00\x53\x77\x40"
        _send_at_once(peer, (event * count for count in (*[most] * 20, room.limits.batch_events + 1)))
        condition = refused(peer, link, names.LINK_MESSAGE_SIZE_EXCEEDED)
        yield f"20 batches of {most} events, then {condition} for one with too many"


def _uncompressed_bytes(room: Room) -> Iterator[str]:
    """Batches that are about a thousand times as large when they are decompressed, at once; then one that is
    too large.
    """
    with room.peer() as peer:
        link = peer.sender(LOG)
        peer.until(lambda: link.credit > 0, "no credit")
        limit = min(room.limits.uncompressed_bytes, room.limits.message_bytes)
        event = b"\x00\x53\x75\xb0\x00\x00\x10\x00" + bytes(4096)
        most = _bomb(write_sent_batch([event] * (min(limit, 1 << 20) // 4200)))
        over = _bomb(write_sent_batch([event] * (limit // 4096 + 1)))
        expect(len(over) < 10_000, f"{len(over)} bytes are not a bomb")
        _send_at_once(peer, [*[most] * 40, over])
        condition = refused(peer, link, names.LINK_MESSAGE_SIZE_EXCEEDED)
        yield f"40 batches of a megabyte in {len(most)} bytes, then {condition}"


def _costly_events(room: Room) -> Iterator[str]:
    """From many connections at once: small batches of as many events as may be, whose key is the last of as
    many annotations as the node searches.
    """
    key = {Symbol(f"n{number}"): None for number in range(60)} | {Symbol(names.GROUP_KEY): "k"}
    event = b"\x00\x53\x72" + encode(key) + b"\x00\x53\x77\xa1\x01x"
    count = min(room.limits.batch_events, 7000, room.limits.uncompressed_bytes // (len(event) + 10))
    batch = compressed(write_sent_batch([event] * count), codec("zstd"))
    with ExitStack() as stack:
        peers = [stack.enter_context(room.peer()) for _ in range(20)]
        links = [peer.sender(LOG) for peer in peers]
        for peer, link in zip(peers, links, strict=True):
            peer.until(lambda link=link: link.credit > 0, "no credit")  # type: ignore[misc]
        for peer in peers:
            _send_at_once(peer, [batch] * 2)
        yield f"20 connections send 40 batches of {count} events in {len(batch)} bytes"
        # Until all are stored: the neighbour is measured meanwhile.
        for peer in peers:
            link = peer.sender(LOG)
            peer.until(lambda link=link: link.credit > 0, "no credit")  # type: ignore[misc]


def _bomb(batch: bytes) -> bytes:
    """Return a compressed batch of any size. A client leaves batches above 4 MiB as they are."""
    frame = codec("zstd").compress(batch)
    annotations = {
        Symbol(names.BATCH_COMPRESSION): Symbol("zstd"),
        Symbol(names.BATCH_UNCOMPRESSED_SIZE): UInt(len(batch)),
    }
    return b"\x00\x53\x71" + encode(annotations) + b"\x00\x53\x75" + encode(frame)


def _send_at_once(peer: Peer, batches: Iterable[bytes]) -> None:
    """Send batches on the first link of a connection, settled, without waiting for anything."""
    for number, batch in enumerate(batches):
        fields = {
            "handle": UInt(0),
            "delivery-id": UInt(number),
            "delivery-tag": b"b%d" % number,
            "message-format": UInt(names.BATCH_MESSAGE_FORMAT),
            "settled": True,
        }
        peer.raw(frames.frame(0, frames.performative("transfer", fields) + batch))
        peer.pump(0.0)


ATTACKS: Final = (
    node_attack("a peer sends batches of very small events", "limits.batch_events", _batch_events),
    node_attack(
        "a peer sends batches that decompress to much", "limits.uncompressed_bytes", _uncompressed_bytes
    ),
    node_attack(
        "many peers send small batches that are expensive to read",
        "limits.uncompressed_bytes",
        _costly_events,
        table=Table.PRODUCTS,
    ),
)
