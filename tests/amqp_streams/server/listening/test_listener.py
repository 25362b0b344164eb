"""Listeners on real loopback sockets, on both event loops; TLS is in test_listener_tls.py."""

import asyncio
import contextlib
import errno
import itertools
import socket
import struct
from typing import Any

import pytest

from amqp_streams.config import Limits
from amqp_streams.server.listening.channel import DRAINED_WHEN_ABOVE, ByteChannel, Connection
from amqp_streams.server.listening.sockets import ACCEPTS_A_TURN, Admission
from tests.amqp_streams.server.peers import (
    Connect,
    Echo,
    Echoes,
    Listen,
    closed_without_a_word,
    hang_up,
)

BOTH_LOOPS = True


async def test_bytes_come_back_and_the_end_is_reported_once(
    serve: Listen, connect: Connect, echoes: Echoes
) -> None:
    reader, writer = await connect(await serve(echoes))
    writer.write(b"AMQP\x00\x01\x00\x00")
    assert await reader.readexactly(8) == b"AMQP\x00\x01\x00\x00"
    own = writer.get_extra_info("sockname")
    await hang_up(writer)
    echo = echoes.made[0]
    await echo.gone.wait()
    assert (echo.channel.peer, echo.channel.loopback, echo.channel.secure) == (
        f"127.0.0.1:{own[1]}",
        True,
        False,
    )
    assert echo.calls.count("lost") == 1
    assert echo.calls[-1] == "lost"


async def test_bytes_sent_one_by_one_arrive_in_order(serve: Listen, connect: Connect, echoes: Echoes) -> None:
    reader, writer = await connect(await serve(echoes))
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sent = bytes(range(256))
    for byte in sent:
        writer.write(bytes([byte]))
        await writer.drain()
    assert await reader.readexactly(256) == sent


async def test_a_flood_of_connections_is_accepted_over_many_iterations(serve: Listen, echoes: Echoes) -> None:
    """64 of them at once held up connected clients for more than 10 ms."""
    listeners = await serve(echoes)
    with contextlib.ExitStack() as clients:
        for _ in range(10 * ACCEPTS_A_TURN):
            clients.enter_context(socket.create_connection(("127.0.0.1", listeners.addresses[0].port)))
        accepted = [0]
        while accepted[-1] < 10 * ACCEPTS_A_TURN:
            await asyncio.sleep(0)
            accepted.append(listeners.admission.count)
        assert max(b - a for a, b in itertools.pairwise(accepted)) <= ACCEPTS_A_TURN <= 16


async def test_a_peer_that_stops_sending_still_gets_what_was_written(
    serve: Listen, connect: Connect, echoes: Echoes
) -> None:
    reader, writer = await connect(await serve(echoes))
    sent = bytes(1 << 20)
    writer.write(sent)
    writer.write_eof()
    assert await reader.read(-1) == sent
    await hang_up(writer)
    await echoes.made[0].gone.wait()


async def test_a_reset_by_the_peer_is_a_loss_like_another(
    serve: Listen, connect: Connect, echoes: Echoes
) -> None:
    _, writer = await connect(await serve(echoes))
    echo = await echoes.number(0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    await echo.gone.wait()
    echo.channel.write(b"too late")
    echo.channel.pause_reading()
    echo.channel.resume_reading()
    echo.channel.close()
    echo.channel.abort()
    assert echo.channel.pending() == 0
    assert echo.calls == ["lost"]


async def test_a_peer_that_does_not_read_makes_pending_grow_until_it_does(
    serve: Listen, connect: Connect, echoes: Echoes
) -> None:
    listeners = await serve(echoes)
    reader, _writer = await connect(listeners, limit=1024)
    echo = await echoes.number(0)
    for _ in range(64):
        echo.channel.write(bytes(1 << 20))
    assert echo.channel.pending() > DRAINED_WHEN_ABOVE
    assert "drained" not in echo.calls
    assert len(await reader.readexactly(64 << 20)) == 64 << 20
    await echo.room.wait()
    assert echo.channel.pending() <= DRAINED_WHEN_ABOVE


async def test_drained_follows_as_soon_as_pending_was_above_its_threshold(
    serve: Listen, connect: Connect, echoes: Echoes
) -> None:
    """The promise writers stop on: no threshold above DRAINED_WHEN_ABOVE can wait forever."""
    reader, _writer = await connect(await serve(echoes), limit=1024)
    echo = await echoes.number(0)
    sent = 0
    while echo.channel.pending() <= DRAINED_WHEN_ABOVE:
        echo.channel.write(bytes(4096))
        sent += 4096
        await asyncio.sleep(0)
    await reader.readexactly(sent)
    await echo.room.wait()


async def test_a_paused_channel_receives_nothing_until_it_is_resumed(serve: Listen, connect: Connect) -> None:
    echoes = Echoes()

    def paused_from_the_start(channel: ByteChannel) -> Echo:
        loop = (
            asyncio.get_running_loop()
        )  # a turn later: asyncio of early Python 3.11 forgets a pause in connection_made
        loop.call_soon(channel.pause_reading)
        loop.call_soon(channel.pause_reading)
        return echoes(channel)

    listeners = await serve(paused_from_the_start)
    reader, writer = await connect(listeners)
    echo = await echoes.number(0)
    other_reader, other = await connect(listeners)
    other_echo = await echoes.number(1)
    other_echo.channel.resume_reading()
    writer.write(b"held back")
    other.write(b"passes")
    assert await other_reader.readexactly(6) == b"passes"  # by now the first one's bytes have arrived
    assert echo.calls == []
    echo.channel.resume_reading()
    echo.channel.resume_reading()
    assert await reader.readexactly(9) == b"held back"


async def test_close_sends_what_is_buffered_while_the_peer_still_sends(
    serve: Listen, connect: Connect, echoes: Echoes
) -> None:
    """Closing a socket with unread bytes would reset it and destroy the last frames on their way."""
    reader, writer = await connect(await serve(echoes))
    echo = await echoes.number(0)
    echo.channel.pause_reading()
    writer.write(bytes(1 << 20))
    answer = b"x" * (8 << 20)
    echo.channel.write(answer)
    echo.channel.close()
    echo.channel.write(b"ignored")
    assert await reader.read(-1) == answer
    assert "received" not in echo.calls
    await hang_up(writer)
    await echo.gone.wait()
    assert echo.calls == ["lost"]


async def test_a_peer_that_ignores_the_close_is_cut_off(
    serve: Listen, connect: Connect, echoes: Echoes
) -> None:
    _, _writer = await connect(await serve(echoes, linger_s=0.01), limit=1024)
    echo = await echoes.number(0)
    echo.channel.write(bytes(64 << 20))
    echo.channel.close()
    await echo.gone.wait()
    assert echo.calls == ["lost"]


async def test_abort_drops_what_is_buffered(serve: Listen, connect: Connect, echoes: Echoes) -> None:
    reader, _writer = await connect(await serve(echoes), limit=1024)
    echo = await echoes.number(0)
    echo.channel.write(bytes(64 << 20))
    echo.channel.abort()
    await echo.gone.wait()
    with contextlib.suppress(ConnectionResetError):
        assert len(await reader.read(-1)) < 64 << 20


async def test_a_broken_channel_accepts_every_call_until_the_break_is_reported(
    serve: Listen, connect: Connect, echoes: Echoes, caplog: pytest.LogCaptureFixture
) -> None:
    await connect(await serve(echoes))
    echo = await echoes.number(0)
    echo.channel._transport.abort()  # type: ignore[attr-defined]  # as a failed write does
    echo.channel.pause_reading()
    echo.channel.resume_reading()
    for _ in range(10):
        echo.channel.write(b"too late")
    echo.channel.close()
    echo.channel.abort()
    await echo.gone.wait()
    assert echo.calls == ["lost"]
    assert not caplog.records


class Faulty(Echo):
    """A connection that fails as the first bytes on its channel request."""

    def received(self, data: memoryview) -> None:
        super().received(data)
        raise RuntimeError("a fault of our own")

    def lost(self) -> None:
        super().lost()
        raise RuntimeError("another")


async def test_a_fault_of_one_connection_ends_it_and_nothing_else(
    serve: Listen, connect: Connect, echoes: Echoes
) -> None:
    faulty: list[Faulty] = []

    def first_is_faulty(channel: ByteChannel) -> Connection:
        if faulty:
            return echoes(channel)
        faulty.append(Faulty(channel))
        return faulty[0]

    listeners = await serve(first_is_faulty)
    reader, writer = await connect(listeners)
    writer.write(b"boom")
    with contextlib.suppress(ConnectionResetError):
        await reader.read(-1)
    await faulty[0].gone.wait()
    assert faulty[0].calls == ["received", "lost"]
    await hang_up(writer)
    reader, writer = await connect(listeners)
    writer.write(b"well")
    assert await reader.readexactly(4) == b"well"


async def test_a_connection_that_cannot_be_made_is_closed(serve: Listen, connect: Connect) -> None:
    def refuses(channel: ByteChannel) -> Connection:
        raise RuntimeError("no")

    listeners = await serve(refuses)
    for _ in range(2):
        peer = await connect(listeners)
        assert await closed_without_a_word(peer)
    assert await listeners.wait_closed(60)
    assert listeners.admission.count == 0


async def test_five_hundred_connections_live_at_once(serve: Listen, connect: Connect, echoes: Echoes) -> None:
    listeners = await serve(echoes)
    opened = await asyncio.gather(*(connect(listeners) for _ in range(500)))
    for number, (_, writer) in enumerate(opened):
        writer.write(struct.pack("!I", number))
    answers = await asyncio.gather(*(reader.readexactly(4) for reader, _ in opened))
    assert [struct.unpack("!I", answer)[0] for answer in answers] == list(range(500))
    assert len(listeners.channels) == listeners.admission.count == 500
    for _, writer in opened:
        writer.close()
    assert await listeners.wait_closed(60)


async def test_connections_beyond_the_limit_are_closed_and_counted(
    serve: Listen, connect: Connect, echoes: Echoes
) -> None:
    listeners = await serve(echoes, limits=Limits(connections=2))
    kept = [await connect(listeners) for _ in range(2)]
    await echoes.number(1)
    for echo in echoes.made:
        listeners.admission.opened(echo.channel)
    for _ in range(3):
        peer = await connect(listeners)
        assert await closed_without_a_word(peer)
    assert (len(echoes.made), listeners.admission.refused) == (2, 3)
    await hang_up(kept[0][1])
    await echoes.made[0].gone.wait()
    reader, writer = await connect(listeners)
    writer.write(b"room")
    assert await reader.readexactly(4) == b"room"
    await hang_up(writer)
    await hang_up(kept[1][1])


async def test_an_unauthenticated_client_gives_its_slot_up_to_the_next(
    serve: Listen, connect: Connect, echoes: Echoes
) -> None:
    listeners = await serve(echoes, limits=Limits(connections=2))
    known, stranger = await connect(listeners), await connect(listeners)
    await echoes.number(1)
    listeners.admission.opened(echoes.made[0].channel)
    reader, writer = await connect(listeners)
    writer.write(b"room")
    assert await reader.readexactly(4) == b"room"
    assert await closed_without_a_word(stranger)
    known[1].write(b"here")
    assert await known[0].readexactly(4) == b"here"
    assert (listeners.admission.count, listeners.admission.refused) == (2, 1)


async def test_admission_is_shared_between_listeners(serve: Listen, connect: Connect, echoes: Echoes) -> None:
    admission = Admission(1)
    assert admission.enter("a WebSocket", peer="[::1]:1")
    peer = await connect(await serve(echoes, admission=admission))
    assert await closed_without_a_word(peer)
    assert admission.refused == 1


async def test_stop_accepts_no_more_and_leaves_the_established(
    serve: Listen, connect: Connect, echoes: Echoes
) -> None:
    listeners = await serve(echoes)
    reader, writer = await connect(listeners)
    await echoes.number(0)
    listeners.stop()
    listeners.stop()
    with pytest.raises(OSError, match=r"Connect call failed|refused"):
        await connect(listeners)
    writer.write(b"still here")
    assert await reader.readexactly(10) == b"still here"
    closing = asyncio.create_task(listeners.close(drain_s=5))
    assert await reader.read(-1) == b""
    await hang_up(writer)
    await closing
    await hang_up(writer)
    await echoes.made[0].gone.wait()


async def test_close_cuts_off_peers_that_outstay_the_drain(
    serve: Listen, connect: Connect, echoes: Echoes
) -> None:
    listeners = await serve(echoes, linger_s=60.0)
    _, _writer = await connect(listeners, limit=1024)
    (await echoes.number(0)).channel.write(bytes(64 << 20))
    await listeners.close(drain_s=0.01)
    assert echoes.made[0].calls == ["lost"]
    assert not listeners.channels


async def test_close_reaches_connections_that_are_just_being_accepted(
    serve: Listen, connect: Connect, echoes: Echoes
) -> None:
    listeners = await serve(echoes)
    connecting = asyncio.ensure_future(connect(listeners))
    async with asyncio.timeout(60):
        while not listeners.channels:  # noqa: ASYNC110  (no event reports a connection that is not made yet)
            await asyncio.sleep(0)
        await listeners.close(drain_s=3600)
        assert await closed_without_a_word(await connecting)
    assert listeners.admission.count == 0
    assert all(echo.calls == ["lost"] for echo in echoes.made)


def shortage(monkeypatch: pytest.MonkeyPatch, times: int) -> list[socket.socket]:
    """No descriptors for the next `times` accepts; the list grows with every attempt."""
    real, attempts = socket.socket.accept, []

    def accept(self: socket.socket) -> tuple[socket.socket, Any]:
        attempts.append(self)
        if len(attempts) <= times:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(self)

    monkeypatch.setattr(socket.socket, "accept", accept)
    return attempts


async def test_without_descriptors_accepting_pauses_instead_of_spinning(
    serve: Listen, connect: Connect, echoes: Echoes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listening socket stays readable when it cannot be accepted from."""
    listeners = await serve(echoes)
    reader, writer = await connect(listeners)
    await echoes.number(0)
    attempts = shortage(monkeypatch, times=1 << 30)
    await connect(listeners)
    for _ in range(20):
        writer.write(b"served on")
        assert await reader.readexactly(9) == b"served on"
    assert len(attempts) == 1
    listeners.stop()


async def test_accepting_continues_after_the_pause(
    serve: Listen, connect: Connect, echoes: Echoes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amqp_streams.server.listening.sockets.BACK_OFF_S", 0.01)
    listeners = await serve(echoes)
    attempts = shortage(monkeypatch, times=3)
    reader, writer = await connect(listeners)
    writer.write(b"later")
    assert await reader.readexactly(5) == b"later"
    assert len(attempts) > 3
