"""Each reason for which a connection or a link does not move is shown, and only while it holds."""

from typing import Any

import proton

from amqp_streams.config import Limits
from amqp_streams.policy import Quota
from amqp_streams.server.administration.holding import DETAILS, Reason
from amqp_streams.server.identity.guard import Login
from amqp_streams.testing import MemoryStore
from amqp_streams.testing_amqp import EnginePair, InMemoryNode
from tests.amqp_streams.server.administration.asking import ask, body_of


def held(node: InMemoryNode) -> tuple[list[tuple[str, int]], list[str | None]]:
    """The reasons of the first connection with their links, and that of each link."""
    first = body_of(ask(node, "connection", "QUERY"))["connections"][0]
    read = body_of(ask(node, "connection", "READ", first["name"]))
    assert read["held"] == first["held"]
    assert all(each["detail"] == DETAILS[each["reason"]] for each in first["held"])
    links = [each["held"] and each["held"]["reason"] for each in read["attached"]]
    return [(each["reason"], each["links"]) for each in first["held"]], links


def events(count: int, size: int = 1) -> list[Any]:
    return [proton.Message(body=b"x" * size)] * count


def test_a_disk_that_is_behind_withholds_credit() -> None:
    node = InMemoryNode({"temps": 1}, store=MemoryStore(auto=False), limits=Limits(pending_bytes=1 << 20))
    client = EnginePair(node)
    sender = client.sender("temps")
    assert held(node) == ([], [None])
    client.send(sender, *events(3, 500_000))
    assert held(node) == ([(Reason.DISK, 1)], [Reason.DISK])


def test_quotas_withhold_credit_and_events() -> None:
    node = InMemoryNode({"temps": 1}, quotas={"alice": Quota(bytes_in=1000, bytes_out=1000)})
    client = EnginePair(node, login=Login("alice"))
    sender = client.sender("temps")
    client.send(sender, *events(1, 900))
    client.send(sender, *events(1, 900))
    client.receiver("temps", credit=10, name="out")
    node.append("temps", *[b"y" * 200] * 20)
    node.run()
    reasons, links = held(node)
    assert links == [Reason.QUOTA_IN, Reason.QUOTA_OUT]
    assert (Reason.QUOTA_OUT, 1) in reasons
    node.advance(60_000)
    assert held(node)[1] == [None, None]


def test_a_client_that_grants_no_credit_is_shown_while_events_wait() -> None:
    node = InMemoryNode({"temps": 1})
    client = EnginePair(node)
    receiver = client.receiver("temps", credit=1)
    assert held(node) == ([], [None])
    node.append("temps", *[b"x"] * 5_000)
    node.run()
    assert held(node) == ([(Reason.CREDIT, 1)], [Reason.CREDIT])
    client.flow(receiver, 100)
    assert held(node) == ([(Reason.CREDIT, 1)], [Reason.CREDIT])


def test_a_client_that_settles_nothing_is_shown() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(unsettled=10))
    client = EnginePair(node)
    receiver = client.receiver("temps", credit=1000)
    node.append("temps", *[b"x"] * 100)
    node.run()
    assert held(node) == ([(Reason.SETTLEMENT, 1)], [Reason.SETTLEMENT])
    for arrived in receiver.take():
        client.settle(arrived)
    node.run()
    assert held(node) == ([(Reason.SETTLEMENT, 1)], [Reason.SETTLEMENT])  # the next ten


def test_a_link_that_hands_its_partition_over_is_shown() -> None:
    node = InMemoryNode({"temps": 2})
    first = EnginePair(node, container="a")
    for partition in range(2):
        node.append("temps", b"x", partition=partition)
    for _ in range(2):
        first.receiver("temps", group="g", credit=10)
    EnginePair(node, container="b").receiver("temps", group="g", credit=10)
    node.advance(node.settings.groups.pause_ms + 1000)
    assert (Reason.HANDOVER, 1) in held(node)[0]


def test_a_client_that_does_not_read_is_shown() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(connection_pending_bytes=64 << 10))
    client = EnginePair(node)
    client.receiver("temps", credit=1000)
    channel = node._wires[0].channel
    channel.stuck = True
    node.append("temps", *[b"x" * 200] * 800)
    node.run()
    reasons, links = held(node)
    assert links == [Reason.UNREAD]
    assert reasons == [(Reason.UNREAD, 1)]


def test_an_attach_that_waits_for_a_partition_is_shown() -> None:
    node = InMemoryNode({"temps": 1})
    EnginePair(node, container="b")
    owner = EnginePair(node, container="a")
    owner.receiver("temps", group="g")
    waiting = EnginePair(node, container="c")
    waiting.receiver("temps", group="g")
    names = [each["name"] for each in body_of(ask(node, "connection", "QUERY"))["connections"]]
    read = body_of(ask(node, "connection", "READ", names[2]))
    assert [each["role"] for each in read["attached"]] == ["attaching"]
    assert read["held"][0]["reason"] == Reason.ATTACH


def test_each_reason_has_words() -> None:
    assert DETAILS.keys() == set(Reason)
