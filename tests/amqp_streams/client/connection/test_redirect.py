"""Being sent on to another container: where to, and when not."""

from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.client import EARLIEST, Event, RedirectError, SaslOptions, connect
from amqp_streams.client.connection.redirect import address_there, target
from amqp_streams.client.endpoints.address import Address
from amqp_streams.wire.codec import Symbol
from tests.amqp_streams.client.conftest import AT_ONCE, MemoryNode
from tests.amqp_streams.client.consuming.test_consumer import numbers, record, records
from tests.amqp_streams.client.producing.test_producer import bodies

HOME = Address.parse("amqps://ann:secret@home:5671")
INFO = {"hostname": "beta", "network-host": "10.0.0.2", "port": 5699, "address": "log@beta"}


def redirect(host: str = "10.0.0.2", **more: object) -> proton.Condition:
    named: dict[str, Any] = {"hostname": "beta", "network-host": host} if host else {}
    info: dict[str, Any] = {**named, "port": proton.uint(5699), **more}
    return proton.Condition(
        "amqp:link:redirect",
        "partition 1 is elsewhere",
        {proton.symbol(key): value for key, value in info.items()},
    )


def test_user_password_and_way_stay_and_the_name_is_what_the_peer_is_called() -> None:
    assert target(INFO, HOME) == Address(
        "amqps", "10.0.0.2", 5699, user="ann", password="secret", hostname="beta"
    )
    assert target({**INFO, "hostname": "10.0.0.2"}, HOME).hostname is None
    assert target({"hostname": "beta", "port": 1}, HOME) == Address(
        "amqps", "beta", 1, user="ann", password="secret"
    )
    assert target({**INFO, "network-host": "::1"}, HOME).host == "::1"
    assert target({**INFO, "network-host": "bob:x@evil/"}, HOME).host == "bob:x@evil/"
    assert target({**INFO, "port": "5700"}, HOME).port == 5700
    assert target({**INFO, "scheme": Symbol("wss")}, Address.parse("ws://first/amqp")) == Address(
        "wss", "10.0.0.2", 5699, "/amqp", hostname="beta"
    )


def test_the_existing_address_is_the_one_that_is_reported() -> None:
    assert address_there(INFO, "log") == "log@beta"
    assert address_there({}, "log") == "log"


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ({"port": 1}, "no network-host"),
        ({"network-host": "b"}, "no port"),
        ({"network-host": "b", "port": 0}, "no port"),
        ({"network-host": "b", "port": True}, "no port"),
        ({"network-host": "b", "port": 65_536}, "no port"),
        ({"network-host": "b", "port": "1" * 20}, "no port"),
        ({"network-host": "b", "port": 1, "scheme": "http"}, "scheme is not valid"),
        ({"network-host": "b", "port": 1, "scheme": "amqp"}, "without TLS"),
        ({"network-host": "b", "port": 1, "scheme": "ws"}, "without TLS"),
        ({"network-host": "b", "port": 1, "scheme": "amqp://x"}, "without TLS"),
    ],
)
def test_a_redirect_that_is_unusable_or_less_secure_is_not_followed(
    info: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        target(info, HOME)


@given(
    st.dictionaries(
        st.sampled_from(["hostname", "network-host", "port", "address", "scheme"]),
        st.one_of(st.text(), st.integers(), st.none()),
    )
)
def test_nothing_that_a_node_says_is_more_than_a_refusal(info: dict[str, object]) -> None:
    try:
        there = target(info, HOME)
    except ValueError:
        return
    assert there.secure
    assert there.user == "ann"


async def test_a_consumer_attaches_where_it_is_sent(node: MemoryNode) -> None:
    node.refused["log"] = redirect(address="log@beta")
    node.outgoing["log@beta"].extend(records(0, 3))
    openly = SaslOptions(plain_without_tls=True)
    async with (
        connect("amqp://ann:secret@home", sasl=openly) as client,
        client.consumer("log", partition=0, start=EARLIEST) as consumer,
    ):
        assert numbers(await consumer.receive()) == [0, 1, 2]
        assert [str(address) for address in node.asked] == ["amqp://home:5672", "amqp://10.0.0.2:5699"]
        assert (node.asked[1].user, node.asked[1].password) == ("ann", "secret")
        assert node.peer.connection.remote_hostname == "beta"
    assert all(stream.open is False for stream in node.streams)


async def test_a_password_for_this_machine_is_not_shown_to_another_without_tls(node: MemoryNode) -> None:
    node.refused["log"] = redirect()
    node.mechanisms = ("PLAIN",)
    async with connect("amqp://ann:secret@127.0.0.1") as client:
        with pytest.raises(RedirectError, match="would send the password unencrypted"):
            async with client.consumer("log", partition=0):
                pass


async def test_a_producer_attaches_where_it_is_sent(node: MemoryNode) -> None:
    node.refused["log"] = redirect(address="log@beta")
    async with connect("amqp://home") as client, client.producer("log", partition=1) as producer:
        await producer.send(Event(1))
    assert bodies(node, "log@beta") == [1]


async def test_when_the_other_container_is_lost_the_first_is_asked_again(node: MemoryNode) -> None:
    node.refused["log"] = redirect(address="log@beta")
    node.outgoing["log@beta"].extend(records(0, 2))
    async with (
        connect("amqp://home", retry=AT_ONCE) as client,
        client.consumer("log", partition=0, start=EARLIEST) as consumer,
    ):
        assert numbers(await consumer.receive()) == [0, 1]
        del node.refused["log"]
        node.outgoing["log"].append(record(2))
        node.lose()
        node.streams.pop()  # the first connection is the latest again
        assert numbers(await consumer.receive()) == [2]


async def test_another_container_that_does_not_answer_is_an_error_that_says_so(node: MemoryNode) -> None:
    node.refused["log"] = redirect()
    async with connect("amqp://home") as client:
        await client.connect()
        node.unreachable = 1
        with pytest.raises(RedirectError, match="does not answer"):
            async with client.consumer("log", partition=0):
                pass


async def test_containers_that_send_each_other_a_link_do_not_keep_it_going_round(node: MemoryNode) -> None:
    node.refused["log"] = redirect()
    async with connect("amqp://home", redirects_max=3) as client:
        with pytest.raises(RedirectError, match="redirected 3 times in a row"):
            async with client.consumer("log", partition=0):
                pass
    assert len(node.asked) == 2  # the connection there is used again


@pytest.mark.parametrize(
    ("options", "condition"), [({"redirects_max": 0}, redirect()), ({}, redirect(host=""))]
)
async def test_redirects_are_refusals_if_unwanted_or_without_an_address(
    node: MemoryNode, options: dict[str, int], condition: proton.Condition
) -> None:
    node.refused["log"] = condition
    async with connect("amqp://home", redirects_max=options.get("redirects_max", 4)) as client:
        with pytest.raises(
            RedirectError,
            match=r"partition 1 is elsewhere \((redirects are not followed|it has no network-host)",
        ) as told:
            async with client.consumer("log", partition=0):
                pass
    assert told.value.condition == names.LINK_REDIRECT
    assert len(node.asked) == 1
