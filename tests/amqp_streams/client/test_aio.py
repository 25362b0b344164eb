"""Connecting, losing and closing connections, against a scripted node in memory."""

import asyncio
import random

import proton
import pytest

from amqp_streams.client import (
    AuthenticationError,
    ClosedError,
    ConnectError,
    ConnectionLostError,
    Event,
    RetryPolicy,
    SaslOptions,
    TimedOutError,
    connect,
)
from amqp_streams.client.endpoints.rotation import Health
from tests.amqp_streams.client.conftest import AT_ONCE, MemoryNode
from tests.amqp_streams.client.producing.test_producer import settle_loop

URL = "amqp://node"


@pytest.mark.parametrize("url", ["http://node", [], "amqp://"])
async def test_a_malformed_url_is_a_value_error_at_once(url: str | list[str]) -> None:
    with pytest.raises(ValueError, match=r"URL|http"):
        connect(url)


async def test_the_first_connection_is_not_retried_unless_asked_for(node: MemoryNode) -> None:
    node.unreachable = 2
    with pytest.raises(ConnectError, match="amqp://node:5672: refused"):
        async with connect(URL, retry=AT_ONCE):
            pass
    assert len(node.asked) == 1
    async with connect(URL, retry=RetryPolicy(first_connect=True, first_ms=0)):
        assert len(node.asked) == 3
    node.unreachable = 9
    with pytest.raises(ConnectError, match="gave up: amqp://node:5672: refused"):
        async with connect(URL, retry=RetryPolicy(first_connect=True, first_ms=0, attempts_max=3)):
            pass


async def test_only_a_connection_that_failed_before_is_logged_as_made_again(
    node: MemoryNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "amqp_streams.client")
    async with connect(URL, retry=RetryPolicy(first_connect=True, first_ms=0)):
        assert "reconnected" not in caplog.text
    node.unreachable = 1
    async with connect(URL, retry=RetryPolicy(first_connect=True, first_ms=0)):
        assert "reconnected" in caplog.text


async def test_an_attempt_tries_each_address_and_the_one_that_failed_is_last(node: MemoryNode) -> None:
    health = Health(random.Random(3).random)
    node.unreachable = 1
    async with connect(["amqp://one", "amqp://two"], retry=AT_ONCE, health=health) as client:
        bad, good = [address.host for address in node.asked]
        assert {bad, good} == {"one", "two"}
        assert client.address == f"amqp://{good}:5672"
        node.unreachable = 1
        node.lose()
        node.outgoing["log/$info"].append(Event({"partitions": []}).encode())
        await client.info("log")
        assert [address.host for address in node.asked] == [bad, good, bad, good], "one pause ends first"


async def test_no_address_answering_names_each(node: MemoryNode) -> None:
    node.unreachable = 9
    with pytest.raises(ConnectError, match=r"amqp://one:5672: refused; amqp://two:5672: refused"):
        async with connect(["amqp://one", "amqp://two"]):
            pass


async def test_user_and_password_come_from_the_url_or_from_the_arguments(node: MemoryNode) -> None:
    told: list[bytes] = []

    def password_ok(_mechanism: str, response: bytes) -> bool:
        told.append(response)
        return True

    node.password_ok = password_ok
    url, openly = "amqp://ann:one@node", SaslOptions(plain_without_tls=True)
    async with connect(url, sasl=openly), connect(url, user="bob", password="two", sasl=openly), connect(URL):
        assert told == [b"\0ann\0one", b"\0bob\0two", b"anonymous"]


async def test_a_refused_user_is_tried_once_at_each_address(node: MemoryNode) -> None:
    node.password_ok = lambda mechanism, response: False
    with pytest.raises(AuthenticationError):
        async with connect(
            ["amqp://ann:x@one", "amqp://ann:x@two"], retry=RetryPolicy(first_connect=True, first_ms=0)
        ):
            pass
    assert sorted(address.host for address in node.asked) == ["one", "two"]


async def test_a_node_that_does_not_answer_is_a_timeout(node: MemoryNode) -> None:
    node.mute = True
    with pytest.raises(TimedOutError, match="connecting"):
        async with connect(URL, timeout=0.001):
            pass
    assert not node.streams[-1].open


async def test_a_connection_that_the_peer_closes_is_made_again(node: MemoryNode) -> None:
    async with connect(URL, retry=AT_ONCE) as client, client.producer("log") as producer:
        node.peer.connection.condition = proton.Condition("amqp:connection:forced", "maintenance")
        node.peer.connection.close()
        node.work()
        await producer.send(Event(1))
        assert len(node.asked) == 2


async def test_giving_up_reports_the_last_failure_and_a_later_call_tries_again(node: MemoryNode) -> None:
    async with connect(URL, retry=RetryPolicy(attempts_max=2, first_ms=0)) as client:
        node.unreachable = 2
        node.lose()
        with pytest.raises(ConnectionLostError, match="gave up: amqp://node:5672: refused"):
            await client.info("log")
        node.outgoing["log/$info"].append(Event({"partitions": []}).encode())
        assert (await client.info("log")).log == "log"


async def test_without_retries_a_loss_is_final(node: MemoryNode) -> None:
    async with connect(URL, retry=RetryPolicy(attempts_max=0)) as client, client.consumer("log") as consumer:
        node.lose()
        with pytest.raises(ConnectionLostError):
            await consumer.receive()
    assert len(node.asked) == 1


async def test_closing_the_client_ends_what_waits(node: MemoryNode) -> None:
    client = connect(URL)
    await client.connect()
    consumer = client.consumer("log")
    await consumer.open()
    receiving = asyncio.create_task(consumer.receive())
    await settle_loop()
    await client.close()
    await client.close()
    with pytest.raises(ClosedError):
        await receiving
    with pytest.raises(ClosedError):
        await client.info("log")
    assert node.peer.closed
    assert not node.streams[-1].open


async def test_closing_while_a_connection_is_made_again_ends_that(node: MemoryNode) -> None:
    async with connect(URL, retry=RetryPolicy(first_ms=60_000, wait_max_ms=60_000)) as client:
        node.lose()
        asking = asyncio.create_task(client.info("log"))
        await settle_loop()
        await client.close()
        with pytest.raises(ClosedError):
            await asking


async def test_a_hundred_connections_lost_leave_nothing_behind(node: MemoryNode) -> None:
    async with (
        connect(URL, retry=RetryPolicy(first_ms=0, attempts_max=1000)) as client,
        client.producer("log") as producer,
    ):
        for number in range(100):
            pending = await producer.post(Event(number))
            node.lose()
            await pending
        before = len(asyncio.all_tasks())
        assert before <= 3
        assert len(node.asked) == 101
