"""TLS listeners on real loopback sockets, on both event loops."""

import asyncio
import contextlib
from typing import Any

from amqp_streams.config import Limits, Listener
from amqp_streams.server.listening.channel import DRAINED_WHEN_ABOVE
from amqp_streams.server.listening.tls import TlsContext
from tests.amqp_streams.decoded import mapping
from tests.amqp_streams.server.peers import Authority, Connect, Echoes, Listen, closed_without_a_word, hang_up

BOTH_LOOPS = True


def tls_listener(authority: Authority, name: str = "server", *, client_ca: bool = False) -> dict[str, Any]:
    settings = authority.issue(name)
    return {
        "tls": TlsContext(settings.model_copy(update={"client_ca": authority.ca}) if client_ca else settings)
    }


TLS_LOCAL = Listener(host="127.0.0.1", port=0, tls=True)


async def test_tls_carries_megabytes_both_ways(
    serve: Listen, connect: Connect, echoes: Echoes, authority: Authority
) -> None:
    listeners = await serve(echoes, TLS_LOCAL, **tls_listener(authority))
    reader, writer = await connect(listeners, ssl=authority.client_context(), server_hostname="localhost")
    sent = bytes(range(256)) * 4096 * 4
    writer.write(sent)
    assert await reader.readexactly(len(sent)) == sent
    echo = echoes.made[0]
    assert echo.channel.secure
    assert echo.channel.certificate is None
    await hang_up(writer)
    await echo.gone.wait()
    assert echo.calls.count("lost") == 1


async def test_tls_connections_do_not_mix_in_the_shared_buffer(
    serve: Listen, connect: Connect, echoes: Echoes, authority: Authority
) -> None:
    listeners = await serve(echoes, TLS_LOCAL, **tls_listener(authority))
    context = authority.client_context()
    opened = await asyncio.gather(
        *(connect(listeners, ssl=context, server_hostname="localhost") for _ in range(8))
    )

    async def talk(number: int) -> bool:
        reader, writer = opened[number]
        sent = bytes([number]) * 300_000
        writer.write(sent)
        return await reader.readexactly(len(sent)) == sent

    assert all(await asyncio.gather(*map(talk, range(8))))
    assert all(len(set(echo.got)) == 1 for echo in echoes.made)


async def test_over_tls_too_pending_grows_until_the_peer_reads(
    serve: Listen, connect: Connect, echoes: Echoes, authority: Authority
) -> None:
    listeners = await serve(echoes, TLS_LOCAL, **tls_listener(authority))
    reader, _ = await connect(
        listeners, ssl=authority.client_context(), server_hostname="localhost", limit=1024
    )
    echo = await echoes.number(0)
    sent = 0
    while echo.channel.pending() <= DRAINED_WHEN_ABOVE:
        echo.channel.write(bytes(65_536))
        sent += 65_536
        await asyncio.sleep(0)
    assert "drained" not in echo.calls
    await reader.readexactly(sent)
    await echo.room.wait()
    assert echo.channel.pending() <= DRAINED_WHEN_ABOVE


async def test_tls_close_sends_what_is_buffered(
    serve: Listen, connect: Connect, echoes: Echoes, authority: Authority
) -> None:
    listeners = await serve(echoes, TLS_LOCAL, **tls_listener(authority))
    reader, writer = await connect(listeners, ssl=authority.client_context(), server_hostname="localhost")
    echo = await echoes.number(0)
    echo.channel.write(bytes(4 << 20))
    echo.channel.close()
    assert len(await reader.read(-1)) == 4 << 20
    await hang_up(writer)
    await echo.gone.wait()


async def test_tls_with_a_client_authority_wants_and_shows_the_certificate(
    serve: Listen, connect: Connect, echoes: Echoes, authority: Authority
) -> None:
    listeners = await serve(echoes, TLS_LOCAL, **tls_listener(authority, client_ca=True))
    context = authority.client_context(presenting=authority.issue("alice"))
    reader, writer = await connect(listeners, ssl=context, server_hostname="localhost")
    writer.write(b"hi")
    assert await reader.readexactly(2) == b"hi"
    certificate = mapping(echoes.made[0].channel.certificate)
    assert certificate["subject"] == ((("commonName", "alice"),),)
    await hang_up(writer)
    with contextlib.suppress(OSError):  # TLS 1.3: the client may be through before it hears the refusal
        stranger, _ = await connect(listeners, ssl=authority.client_context(), server_hostname="localhost")
        assert await stranger.read(-1) == b""
    assert len(echoes.made) == 1


async def test_a_handshake_that_never_comes_is_given_up(
    serve: Listen, connect: Connect, echoes: Echoes, authority: Authority
) -> None:
    listeners = await serve(
        echoes, TLS_LOCAL, limits=Limits(unauthenticated_ms=100), **tls_listener(authority)
    )
    peer = await connect(listeners)
    assert await closed_without_a_word(peer)
    assert await listeners.wait_closed(60)
    assert listeners.admission.count == 0
    assert not echoes.made


async def test_a_handshake_that_does_not_come_gives_its_place_up(
    serve: Listen, connect: Connect, echoes: Echoes, authority: Authority
) -> None:
    listeners = await serve(echoes, TLS_LOCAL, limits=Limits(connections=1), **tls_listener(authority))
    silent = await connect(listeners)
    reader, writer = await connect(listeners, ssl=authority.client_context(), server_hostname="localhost")
    writer.write(b"room")
    assert await reader.readexactly(4) == b"room"
    assert await closed_without_a_word(silent)
    assert (len(echoes.made), listeners.admission.count) == (1, 1)
    await hang_up(writer)


async def test_noise_instead_of_a_handshake_is_refused(
    serve: Listen, connect: Connect, echoes: Echoes, authority: Authority
) -> None:
    listeners = await serve(echoes, TLS_LOCAL, **tls_listener(authority))
    reader, writer = await connect(listeners)
    writer.write(b"AMQP\x00\x01\x00\x00 no client hello at all")
    with contextlib.suppress(ConnectionResetError):
        await reader.read(-1)
    assert await listeners.wait_closed(60)
    assert not echoes.made


async def test_close_gives_up_handshakes_under_way(
    serve: Listen, connect: Connect, echoes: Echoes, authority: Authority
) -> None:
    listeners = await serve(echoes, TLS_LOCAL, **tls_listener(authority))
    _, _writer = await connect(listeners)
    async with asyncio.timeout(60):
        while not listeners.channels:  # noqa: ASYNC110  (no event reports the beginning of a handshake)
            await asyncio.sleep(0)
        await listeners.close(drain_s=3600)
    assert not listeners.channels


async def test_new_connections_get_the_reloaded_certificate(
    serve: Listen, connect: Connect, echoes: Echoes, authority: Authority
) -> None:
    first, second = authority.issue("first"), authority.issue("second")
    settings = authority.issue("current")
    for source, target in ((first.certificate, settings.certificate), (first.key, settings.key)):
        target.write_bytes(source.read_bytes())
    tls = TlsContext(settings)
    listeners = await serve(echoes, TLS_LOCAL, tls=tls)
    reader, writer = await connect(listeners, ssl=authority.client_context(), server_hostname="localhost")
    for source, target in ((second.certificate, settings.certificate), (second.key, settings.key)):
        target.write_bytes(source.read_bytes())
    assert tls.reload()
    _, newer = await connect(listeners, ssl=authority.client_context(), server_hostname="localhost")
    assert presented_name(writer) == "first"
    assert presented_name(newer) == "second"
    writer.write(b"lives")
    assert await reader.readexactly(5) == b"lives"


def presented_name(writer: asyncio.StreamWriter) -> str:
    subject = writer.get_extra_info("peercert")["subject"]
    return str(dict(pair for entry in subject for pair in entry)["commonName"])
