"""Frames of WebSockets: floods end the connection or take turns, on both event loops."""

import asyncio
import contextlib
from typing import Any

import pytest

from amqp_streams.server.links import turns
from amqp_streams.server.listening import websocket_frames
from amqp_streams.server.listening.websocket_frames import PARSED_BYTES, WebSocketFrames
from tests.amqp_streams.server.listening.dialing import Open, Start, take
from tests.amqp_streams.server.peers import Echoes

BOTH_LOOPS = True


async def test_a_peer_that_pings_and_reads_no_pong_is_cut_off(
    start: Start, dial: Open, echoes: Echoes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pongs wait below the layer that a connection's own limit covers. The client does not close the
    connection itself.
    """
    monkeypatch.setattr(websocket_frames, "PONG_BYTES_MAX", 4096)
    monkeypatch.setattr(websocket_frames, "EMPTY_FRAMES_MAX", 1 << 30)
    client = await dial(await start(echoes), ping_interval=None)
    await echoes.number(0)
    client.transport.pause_reading()
    pings, sent = (b"\x89\xfd" + bytes(4) + bytes(125)) * 1000, 0
    with contextlib.suppress(OSError):
        while sent < 64 << 20 and not client.transport.is_closing() and not echoes.made[0].gone.is_set():
            client.transport.write(pings)
            sent += len(pings)
            await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await echoes.made[0].gone.wait()


@pytest.mark.parametrize(
    "frame",
    [
        b"\x82\x80" + bytes(4),
        b"\x89\x80" + bytes(4),
        b"\x02\x80" + bytes(4) + b"\x00\x80" + bytes(4),
        b"\x8a\x80" + bytes(4),
    ],
)
async def test_a_flood_of_empty_frames_ends_the_connection(
    start: Start, dial: Open, echoes: Echoes, monkeypatch: pytest.MonkeyPatch, frame: bytes
) -> None:
    monkeypatch.setattr(websocket_frames, "EMPTY_FRAMES_MAX", 100)
    client = await dial(await start(echoes))
    await echoes.number(0)
    first, rest = (frame[:6], frame[6:]) if len(frame) > 6 else (b"", frame)
    client.transport.write(first + rest * 200)
    await echoes.made[0].gone.wait()


async def test_single_empty_messages_and_pings_do_no_harm(start: Start, dial: Open, echoes: Echoes) -> None:
    client = await dial(await start(echoes))
    for data in (b"", [b"", b""], [b"a", b"", b"b"], [b"", b"c"], b"d"):
        await client.send(data)
        await (await client.ping())
    assert await take(client, 4) == b"abcd"


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the pieces that are parsed, on a machine on which each takes all the time of its turn."""
    monkeypatch.setattr(turns, "BUDGET_S", 1e-9)
    sizes = list[int]()
    parse = WebSocketFrames._parse

    def counted(self: WebSocketFrames, piece: memoryview) -> bool:
        sizes.append(len(piece))
        return parse(self, piece)

    monkeypatch.setattr(WebSocketFrames, "_parse", counted)
    return sizes


async def test_a_block_of_many_small_messages_is_parsed_in_pieces_and_in_order(
    start: Start, dial: Open, echoes: Echoes, pieces: list[int]
) -> None:
    client = await dial(await start(echoes), ping_interval=None)
    await echoes.number(0)
    sent = bytes(range(256)) * 40
    # Each message has one byte; a mask of zeros leaves it as it is.
    client.transport.write(b"".join(b"\x82\x81" + bytes(4) + bytes((each,)) for each in sent))
    assert await take(client, len(sent)) == sent
    assert max(pieces) <= 2 * PARSED_BYTES  # twice after the handshake, which has no frames
    await client.send(b"x" * 1_000_000)
    assert await take(client, 1_000_000) == b"x" * 1_000_000
    assert max(pieces) > PARSED_BYTES, "a byte of a large message costs little"


async def test_clients_of_tiny_frames_do_not_make_the_node_hold_what_they_send(
    start: Start, dial: Open, echoes: Echoes, pieces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application reads each message, and uvicorn then reads on from the socket, while others have their
    turns.
    """
    held = list[int]()
    take_ = WebSocketFrames._take

    def noted(self: WebSocketFrames, *arguments: Any, **more: Any) -> None:
        take_(self, *arguments, **more)
        held.append(self._pieces.waiting)

    monkeypatch.setattr(WebSocketFrames, "_take", noted)
    server = await start(echoes)
    flooding = [await dial(server, ping_interval=None) for _ in range(5)]
    await echoes.number(4)
    for client in flooding:
        client.transport.write((b"\x82\x81" + bytes(5)) * 500_000)
    while len(pieces) < 200:  # noqa: ASYNC110  nothing reports a piece
        await asyncio.sleep(0)
    assert max(held) <= 1 << 19, "two reads of the socket"


async def test_the_fragments_of_a_message_take_no_more_memory_than_its_bytes(
    start: Start, dial: Open, echoes: Echoes, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = list[int]()
    parse = WebSocketFrames._parse

    def noted(self: WebSocketFrames, piece: memoryview) -> bool:
        more = parse(self, piece)
        held.append(len(self.frames))
        return more

    monkeypatch.setattr(WebSocketFrames, "_parse", noted)
    client = await dial(await start(echoes), ping_interval=None)
    await echoes.number(0)
    one = b"\x81" + bytes(4)  # a masked byte
    ping = b"\x89\x80" + bytes(4)
    for first in (b"\x02", b"\x02\x80" + bytes(4) + b"\x00"):
        client.transport.write(first + one + b"a" + ping + (b"\x00" + one + b"b") * 3000)
        client.transport.write(ping + b"\x80" + one + b"c")
        assert await take(client, 3002) == b"a" + b"b" * 3000 + b"c"
    assert max(held) <= 1


async def test_clients_that_flood_at_the_same_time_take_turns(
    start: Start, dial: Open, echoes: Echoes, pieces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket_frames, "EMPTY_FRAMES_MAX", 1 << 30)
    server = await start(echoes)
    flooding = [await dial(server, ping_interval=None) for _ in range(5)]
    other = await dial(server, ping_interval=None)
    await echoes.number(5)
    for client in flooding:
        client.transport.write((b"\x8a\x80" + bytes(4)) * 5000)
    await asyncio.sleep(0)
    await other.send(b"other")
    assert await take(other, 5) == b"other"
    while sum(pieces) < 5 * 5000 * 6:  # noqa: ASYNC110  nothing reports the last piece
        await asyncio.sleep(0)
    assert max(pieces) <= 2 * PARSED_BYTES
