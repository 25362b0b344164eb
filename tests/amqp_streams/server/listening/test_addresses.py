"""The addresses that a listener binds: several, taken, not local, IPv6."""

import socket

import pytest

from amqp_streams.config import Listener
from amqp_streams.errors import ConfigError
from tests.amqp_streams.server.peers import (
    LOCAL,
    Connect,
    Echoes,
    Listen,
)

BOTH_LOOPS = True


async def test_listens_on_several_addresses_and_reports_each_port(
    serve: Listen, connect: Connect, echoes: Echoes
) -> None:
    listeners = await serve(echoes, LOCAL, Listener(host="127.0.0.2", port=0))
    first, second = listeners.addresses
    assert (first.host, second.host) == ("127.0.0.1", "127.0.0.2")
    assert first.port != 0 != second.port
    assert str(first) == f"127.0.0.1:{first.port}"
    for index in (0, 1):
        reader, writer = await connect(listeners, index=index)
        writer.write(b"hi")
        assert await reader.readexactly(2) == b"hi"


async def test_an_address_in_use_is_reported_and_nothing_stays_bound(
    serve: Listen, connect: Connect, echoes: Echoes
) -> None:
    taken = (await serve(echoes)).addresses[0]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    with pytest.raises(
        ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{taken.port}: Address already in use"
    ):
        await serve(echoes, Listener(host="127.0.0.1", port=free), Listener(host=taken.host, port=taken.port))
    assert (await serve(echoes, Listener(host="127.0.0.1", port=free))).addresses[0].port == free


@pytest.mark.parametrize(
    ("host", "words"),
    [("nowhere.invalid", "nowhere.invalid:5672"), ("192.0.2.1", "Cannot assign requested address")],
)
async def test_an_address_that_is_not_local_is_reported(
    serve: Listen, connect: Connect, echoes: Echoes, host: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        await serve(echoes, Listener(host=host, port=5672))


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6 loopback address")


@ipv6
async def test_ipv6_addresses_are_written_in_brackets(
    serve: Listen, connect: Connect, echoes: Echoes
) -> None:
    listeners = await serve(echoes, Listener(host="[::1]", port=0))
    assert str(listeners.addresses[0]) == f"[::1]:{listeners.addresses[0].port}"
    reader, writer = await connect(listeners)
    writer.write(b"six")
    assert await reader.readexactly(3) == b"six"
    channel = echoes.made[0].channel
    assert channel.peer.startswith("[::1]:")
    assert channel.loopback


@ipv6
async def test_every_ipv4_and_every_ipv6_address_share_a_port(
    serve: Listen, connect: Connect, echoes: Echoes
) -> None:
    port = (await serve(echoes, Listener(host="0.0.0.0", port=0))).addresses[0].port
    assert (await serve(echoes, Listener(host="::", port=port))).addresses[0].port == port
