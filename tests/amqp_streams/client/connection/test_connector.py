"""A client of several nodes: where its connections begin, and where they go when a node refuses, ends or is
another one.
"""

import asyncio
import logging
import random

import proton
import pytest

from amqp_streams import names
from amqp_streams.client import (
    EARLIEST,
    AuthenticationError,
    ConnectError,
    ConnectionLostError,
    Event,
    LinkRefusedError,
    RetryPolicy,
    SaslOptions,
    connect,
)
from amqp_streams.client.connection import protocol as protocols
from amqp_streams.client.endpoints.rotation import Health
from amqp_streams.wire.offsets import offset_text
from tests.amqp_streams.client.conftest import AT_ONCE, MemoryNode
from tests.amqp_streams.client.consuming.test_consumer import info, numbers, records

URLS = "amqp://one,two,three"
FORCED = proton.Condition(names.CONNECTION_FORCED, "the node is shutting down")


def seeded(seed: int) -> Health:
    return Health(random.Random(seed).random)


def hosts(node: MemoryNode) -> list[str]:
    return [address.host for address in node.asked]


async def test_clients_begin_at_different_nodes(node: MemoryNode) -> None:
    for seed in range(20):
        async with connect(URLS, health=seeded(seed)):
            pass
    assert set(hosts(node)) == {"one", "two", "three"}
    assert len(node.asked) == 20


async def test_the_connections_of_a_client_are_spread_over_the_nodes(
    node: MemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.channel_max = 1
    monkeypatch.setattr(protocols, "SESSION_LINKS_MAX", 4)
    async with connect(URLS, retry=AT_ONCE) as client:
        consumers = [client.consumer(f"log-{number}") for number in range(18)]
        await asyncio.gather(*(consumer.open() for consumer in consumers))
        assert sorted(hosts(node)) == ["one", "three", "two"]


async def test_a_node_that_shuts_down_is_left_for_another_one(node: MemoryNode) -> None:
    async with connect(URLS, retry=AT_ONCE, health=seeded(1)) as client, client.producer("log") as producer:
        for _ in range(2):
            left = client.address
            node.peer.connection.condition = FORCED
            node.peer.connection.close()
            node.work()
            await producer.send(Event(1))
            assert client.address != left
        assert len(set(hosts(node))) == len(node.asked) == 3, "the two that went were not asked again"


async def test_the_error_names_each_endpoint_in_the_order_of_the_list(node: MemoryNode) -> None:
    node.away = {"one", "two", "three"}
    for seed in range(3):
        with pytest.raises(ConnectError) as failed:
            await connect(URLS, health=seeded(seed)).connect()
        assert str(failed.value) == ("amqp://one:5672: away; amqp://two:5672: away; amqp://three:5672: away")
        assert len(failed.value.failures) == 3
    async with asyncio.timeout(60):
        with pytest.raises(ConnectError, match=r"gave up: amqp://one:5672: away; .*three:5672: away"):
            await connect(URLS, retry=RetryPolicy(2, first_ms=0, first_connect=True)).connect()


async def test_a_failed_endpoint_is_logged_when_another_one_answers(
    node: MemoryNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.away = {"one", "two"}
    with caplog.at_level(logging.WARNING, "amqp_streams.client"):
        for seed in range(5):
            async with connect(URLS, health=seeded(seed)) as client:
                assert client.address == "amqp://three:5672"
    assert "endpoint_failed reason=amqp://one:5672: away" in caplog.text


async def test_one_node_that_refuses_the_login_does_not_stop_the_others(node: MemoryNode) -> None:
    node.password_ok = lambda _mechanism, _response: len(node.asked) > 1
    sasl = SaslOptions(plain_without_tls=True)
    async with connect("amqp://ann:x@one,two", sasl=sasl):
        assert sorted(hosts(node)) == ["one", "two"]
    node.password_ok = lambda _mechanism, _response: False
    node.away = {"one"}
    with pytest.raises(AuthenticationError, match=r"amqp://one:5672: away; .*two"):
        await connect("amqp://ann:x@one,two", sasl=sasl).connect()


async def test_a_token_function_that_fails_once_concerns_one_endpoint(
    node: MemoryNode, caplog: pytest.LogCaptureFixture
) -> None:
    def token() -> str:
        if len(node.asked) == 0 and not tried:
            tried.append(1)
            raise ZeroDivisionError
        return "t"

    tried: list[int] = []
    node.mechanisms = ("OAUTHBEARER",)
    async with connect("amqp://one,two", sasl=SaslOptions(token=token, plain_without_tls=True)):
        assert len(node.asked) == 1
    assert "the token function failed: ZeroDivisionError" in caplog.text


# -- nodes that do not belong together


async def test_a_node_of_another_store_is_refused_and_the_first_one_is_waited_for(
    node: MemoryNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.stores = {"one": "s1", "two": "s2"}
    retry = RetryPolicy(attempts_max=3, first_ms=0)
    async with connect("amqp://one,two", retry=retry) as client:
        producer = client.producer("log")
        await producer.open()
        home = client.address
        with caplog.at_level(logging.WARNING, "amqp_streams.client"):
            node.lose()
            await producer.send(Event(1))
        assert client.address == home
        assert "has the logs of another store" in caplog.text
        node.away = {home.removeprefix("amqp://").removesuffix(":5672")}
        node.lose()
        with pytest.raises(ConnectionLostError, match=r"away.*another store|another store.*away"):
            await producer.send(Event(2))


async def test_nodes_of_one_store_replace_each_other(node: MemoryNode) -> None:
    node.stores = {"one": "s1", "two": "s1"}
    info(node, "log", {"0": offset_text(9)})
    node.outgoing["log"].extend(records(0, 3))
    async with (
        connect("amqp://one,two", retry=AT_ONCE) as client,
        client.consumer("log", start=EARLIEST) as consumer,
    ):
        assert numbers(await consumer.receive()) == [0, 1, 2]
        home = client.address
        node.outgoing["log"].extend(records(3, 5))
        node.lose()
        assert numbers(await consumer.receive()) == [3, 4]
        assert client.address != home


async def test_a_log_of_another_cluster_behind_one_address_is_not_continued(node: MemoryNode) -> None:
    """A load balancer in front of nodes that do not belong together."""
    node.stores = {"balancer": "s1"}
    info(node, "log", {"0": offset_text(9)}, "first")
    node.outgoing["log"].extend(records(0, 3))
    async with (
        connect("amqp://balancer", retry=AT_ONCE) as client,
        client.consumer("log", start=EARLIEST) as consumer,
    ):
        assert numbers(await consumer.receive()) == [0, 1, 2]
        node.stores = {"balancer": "s2"}
        info(node, "log", {"0": offset_text(9)}, "second")
        node.containers = {"balancer": "another"}
        node.lose()
        with pytest.raises(LinkRefusedError, match=r"is second, expected first\. The endpoints must be"):
            await consumer.receive()
