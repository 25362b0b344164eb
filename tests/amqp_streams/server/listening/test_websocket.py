"""AMQP over WebSocket with the `websockets` client, on both event loops."""

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any, cast

import pytest
from starlette.websockets import WebSocket
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from amqp_streams.config import Listener
from amqp_streams.server.listening.admin import Phase
from amqp_streams.server.listening.channel import DRAINED_WHEN_ABOVE, ByteChannel, Connection
from amqp_streams.server.listening.sockets import Admission
from amqp_streams.server.listening.tls import TlsContext
from amqp_streams.server.listening.websocket import WebSocketChannel
from tests.amqp_streams.decoded import mapping
from tests.amqp_streams.server.listening.dialing import Open, Start, take
from tests.amqp_streams.server.peers import Authority, Echo, Echoes

BOTH_LOOPS = True


@pytest.mark.parametrize("path", ["/", "/amqp", "/$servicebus/websocket", "/$servicebus/websocket/"])
async def test_bytes_come_back_at_each_of_the_paths(
    start: Start, dial: Open, echoes: Echoes, path: str
) -> None:
    client = await dial(await start(echoes), path)
    await client.send(b"AMQP\x00\x01\x00\x00")
    assert await take(client, 8) == b"AMQP\x00\x01\x00\x00"
    channel = echoes.made[0].channel
    assert channel.peer == "{}:{}".format(*client.local_address)
    assert (channel.loopback, channel.secure) == (True, False)


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (["amqp"], "amqp"),
        (["AMQPWSB10"], "AMQPWSB10"),
        (["AMQPWSB10", "amqp"], "amqp"),
        (["mqtt", "AMQPWSB10"], "AMQPWSB10"),
    ],
)
async def test_the_sub_protocol_is_the_registered_one_or_the_old_one(
    start: Start, dial: Open, echoes: Echoes, offered: list[str], chosen: str
) -> None:
    client = await dial(await start(echoes), "/", *offered)
    assert client.subprotocol == chosen


async def refused(opening: Awaitable[ClientConnection]) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as caught:
        await opening
    response = caught.value.response
    return response.status_code, (response.body or b"").decode()


async def test_another_sub_protocol_is_refused_with_words(start: Start, dial: Open, echoes: Echoes) -> None:
    status, words = await refused(dial(await start(echoes), "/", "mqtt"))
    assert status == 400
    assert "amqp or AMQPWSB10" in words


async def test_another_path_is_refused_with_words(start: Start, dial: Open, echoes: Echoes) -> None:
    status, words = await refused(dial(await start(echoes), "/nowhere"))
    assert status == 404
    assert "/amqp" in words


async def test_before_ready_and_while_stopping_it_is_refused(
    start: Start, dial: Open, echoes: Echoes
) -> None:
    server = await start(echoes)
    for phase in (Phase.STARTING, Phase.STOPPING):
        server.phase = phase
        assert await refused(dial(server)) == (503, f"{phase}\n")


async def test_websockets_count_among_the_connections(start: Start, dial: Open, echoes: Echoes) -> None:
    admission = Admission(1)
    server = await start(echoes, admission=admission)
    client = await dial(server)
    admission.opened(echoes.made[0].channel)
    assert await refused(dial(server)) == (503, "too many connections\n")
    assert admission.refused == 1
    await client.close()
    await echoes.made[0].gone.wait()
    while admission.count:  # noqa: ASYNC110  (leaves in the turn after it told the connection)
        await asyncio.sleep(0)
    assert await dial(server)


async def test_a_websocket_of_an_unauthenticated_client_gives_its_slot_up_to_the_next(
    start: Start, dial: Open, echoes: Echoes
) -> None:
    admission = Admission(1)
    server = await start(echoes, admission=admission)
    await dial(server)
    second = await dial(server)
    await echoes.made[0].gone.wait()
    await second.send(b"room")
    assert await second.recv() == b"room"
    assert (admission.count, admission.refused) == (1, 1)


async def test_megabytes_pass_both_ways_in_messages_of_any_size(
    start: Start, dial: Open, echoes: Echoes
) -> None:
    client = await dial(await start(echoes))
    sent = bytes(range(256)) * 8192
    sizes, at = [1, 2, 3, 500_000, 65_536, 65_537, len(sent)], 0
    taking = asyncio.create_task(take(client, len(sent)))
    for size in sizes:
        await client.send(sent[at : at + size][: 1 << 20])
        at += min(size, 1 << 20)
    await client.send(sent[at:])
    assert await taking == sent


async def test_fragments_of_a_message_are_one_stream(start: Start, dial: Open, echoes: Echoes) -> None:
    client = await dial(await start(echoes))
    await client.send([b"AM", b"QP", b"\x00\x01\x00\x00"])
    assert await take(client, 8) == b"AMQP\x00\x01\x00\x00"


async def test_a_text_message_ends_the_connection_with_words(
    start: Start, dial: Open, echoes: Echoes
) -> None:
    client = await dial(await start(echoes))
    await client.send("AMQP")
    with pytest.raises(ConnectionClosed) as caught:
        await client.recv()
    assert caught.value.rcvd is not None
    assert (caught.value.rcvd.code, "binary" in caught.value.rcvd.reason) == (1003, True)
    await echoes.made[0].gone.wait()
    assert echoes.made[0].calls == ["lost"]


async def test_a_text_message_that_is_not_utf8_ends_the_connection_without_a_traceback(
    start: Start, dial: Open, echoes: Echoes, caplog: pytest.LogCaptureFixture
) -> None:
    client = await dial(await start(echoes))
    await client.send([b"\xc0"], text=True)
    with pytest.raises(ConnectionClosed) as caught:
        await client.recv()
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1003
    assert not caplog.records


async def test_a_message_beyond_the_bound_ends_the_connection(
    start: Start, dial: Open, echoes: Echoes
) -> None:
    client = await dial(await start(echoes))
    with contextlib.suppress(ConnectionClosed):
        await client.send(bytes((1 << 20) + 1))
    with pytest.raises(ConnectionClosed) as caught:
        await client.recv()
    assert caught.value.rcvd is None or caught.value.rcvd.code == 1009
    await echoes.made[0].gone.wait()
    assert echoes.made[0].calls == ["lost"]


async def test_a_peer_that_does_not_read_makes_pending_grow_until_it_does(
    start: Start, dial: Open, echoes: Echoes
) -> None:
    client = await dial(await start(echoes), max_queue=1)
    echo = await echoes.number(0)
    for _ in range(64):
        echo.channel.write(bytes(1 << 20))
    assert echo.channel.pending() > DRAINED_WHEN_ABOVE
    assert "drained" not in echo.calls
    await take(client, 64 << 20)
    await echo.room.wait()
    assert echo.channel.pending() <= DRAINED_WHEN_ABOVE


async def test_a_paused_channel_receives_nothing_until_it_is_resumed(start: Start, dial: Open) -> None:
    echoes = Echoes()

    def paused_from_the_start(channel: ByteChannel) -> Echo:
        channel.pause_reading()
        return echoes(channel)

    server = await start(paused_from_the_start)
    client, other = await dial(server), await dial(server)
    (await echoes.number(1)).channel.resume_reading()
    await client.send(b"held back")
    await other.send(b"passes")
    assert await take(other, 6) == b"passes"
    assert echoes.made[0].calls == []
    echoes.made[0].channel.resume_reading()
    assert await take(client, 9) == b"held back"


async def test_close_sends_buffered_data_and_a_close_frame(start: Start, dial: Open, echoes: Echoes) -> None:
    client = await dial(await start(echoes))
    echo = await echoes.number(0)
    echo.channel.write(bytes(4 << 20))
    echo.channel.close()
    echo.channel.write(b"ignored")
    await take(client, 4 << 20)
    with pytest.raises(ConnectionClosed) as caught:
        await client.recv()
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1000
    await echo.gone.wait()
    assert echo.calls.count("lost") == 1


async def test_a_peer_that_ignores_the_close_is_cut_off(start: Start, dial: Open, echoes: Echoes) -> None:
    await dial(await start(echoes, linger_s=0.01), max_queue=1)
    echo = await echoes.number(0)
    echo.channel.write(bytes(64 << 20))
    echo.channel.close()
    await echo.gone.wait()
    assert echo.channel.pending() == 0


async def test_abort_ends_it_at_once(start: Start, dial: Open, echoes: Echoes) -> None:
    client = await dial(await start(echoes))
    echo = await echoes.number(0)
    echo.channel.pause_reading()
    echo.channel.write(bytes(64 << 20))
    echo.channel.abort()
    await echo.gone.wait()
    assert echo.calls == ["lost"]
    with pytest.raises(ConnectionClosed):
        await take(client, 1 << 30)
    echo.channel.write(b"too late")
    echo.channel.abort()
    echo.channel.close()


class Faulty(Echo):
    def received(self, data: memoryview) -> None:
        super().received(data)
        raise RuntimeError("a fault of our own")


async def test_a_fault_of_one_connection_ends_it_and_nothing_else(start: Start, dial: Open) -> None:
    made: list[Echo] = []

    def faulty_then_well(channel: ByteChannel) -> Connection:
        if not made:
            made.append(Echo(channel))
            raise RuntimeError("not made")
        made.append((Faulty if len(made) == 1 else Echo)(channel))
        return made[-1]

    server = await start(faulty_then_well)
    with pytest.raises(ConnectionClosed):
        await (await dial(server)).recv()
    client = await dial(server)
    await client.send(b"boom")
    with pytest.raises(ConnectionClosed):
        await take(client, 1 << 30)
    await made[1].gone.wait()
    assert made[1].calls == ["received", "lost"]
    client = await dial(server)
    await client.send(b"well")
    assert await take(client, 4) == b"well"


async def test_over_tls_the_certificate_is_shown(
    start: Start, dial: Open, echoes: Echoes, authority: Authority
) -> None:
    settings = authority.issue("admin").model_copy(update={"client_ca": authority.ca})
    server = await start(echoes, Listener(host="127.0.0.1", port=0, tls=True), tls=TlsContext(settings))
    context = authority.client_context(presenting=authority.issue("alice"))
    client = await dial(server, scheme="wss", ssl=context)
    await client.send(b"hi")
    assert await take(client, 2) == b"hi"
    channel = echoes.made[0].channel
    assert channel.secure
    assert mapping(channel.certificate)["subject"] == ((("commonName", "alice"),),)


@pytest.mark.parametrize(
    ("origin", "loopback"),
    [
        (None, True),
        ("http://localhost:3000", True),
        ("https://127.0.0.1", True),
        ("http://[::1]:80", True),
        ("https://evil.example", False),
        ("https://localhost.evil.example", False),
        ("null", False),
        ("http://[", False),
    ],
)
async def test_a_foreign_web_page_is_not_a_local_program(
    start: Start, dial: Open, echoes: Echoes, origin: str | None, loopback: bool
) -> None:
    """A browser on this machine connects on behalf of any page that it shows. Anonymous access is for local
    programs.
    """
    await dial(await start(echoes), origin=origin)
    channel = (await echoes.number(0)).channel
    assert (channel.loopback, channel.foreign) == (loopback, not loopback)


@pytest.mark.parametrize(
    ("origin", "host", "foreign"),
    [
        (None, "node.example:8672", False),
        ("https://node.example", "node.example:8672", False),
        ("http://NODE.example:3000", "node.example", False),
        ("http://[2001:db8::1]:3000", "[2001:db8::1]:8672", False),
        ("http://localhost:3000", "node.example", False),
        ("https://evil.example", "node.example:8672", True),
        ("https://evil.example", "127.0.0.1:8672", True),
        ("https://node.example.evil.example", "node.example", True),
        ("null", "node.example", True),
        ("null", "", True),
        ("http://[", "[", True),
    ],
)
def test_a_page_is_foreign_unless_it_comes_from_the_host_that_it_connects_to(
    origin: str | None, host: str, foreign: bool
) -> None:
    headers = [(b"host", host.encode())] + ([] if origin is None else [(b"origin", origin.encode())])
    scope = {
        "type": "websocket",
        "scheme": "ws",
        "path": "/",
        "query_string": b"",
        "headers": headers,
        "client": ("192.0.2.7", 40_000),
        "server": ("127.0.0.1", 8672),
    }
    socket = WebSocket(scope, cast("Any", None), cast("Any", None))
    assert WebSocketChannel(socket, asyncio.Transport(), linger_s=1).foreign is foreign


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
async def test_a_client_behind_a_proxy_is_not_a_local_program_and_has_the_address_of_the_proxy(
    start: Start, dial: Open, echoes: Echoes, header: str
) -> None:
    """Otherwise a client could choose the address for which its failed logins are counted."""
    await dial(await start(echoes), additional_headers={header: "192.0.2.7", "X-Forwarded-Proto": "https"})
    channel = (await echoes.number(0)).channel
    assert channel.peer.startswith("127.0.0.1:")
    assert (channel.loopback, channel.secure) == (False, False)


async def test_a_trusted_proxy_names_the_client_that_it_forwards_for(
    start: Start, dial: Open, echoes: Echoes
) -> None:
    server = await start(echoes, trusted_proxies=("127.0.0.0/8",))
    await dial(server, additional_headers={"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https"})
    channel = (await echoes.number(0)).channel
    assert channel.peer.startswith("192.0.2.7:")
    assert (channel.loopback, channel.secure) == (False, True)


async def test_closing_the_server_sends_each_client_a_close_frame(
    start: Start, dial: Open, echoes: Echoes
) -> None:
    server = await start(echoes)
    client = await dial(server)
    await echoes.number(0)
    closing = asyncio.create_task(server.close(drain_s=5))
    with pytest.raises(ConnectionClosed):
        await client.recv()
    await closing
    assert echoes.made[0].calls == ["lost"]
    assert not server.channels
