"""What a description says about each kind of link, and that it stays small."""

from typing import Any, get_args

import proton
import pytest

from amqp_streams.config import Limits
from amqp_streams.server.administration import describing
from amqp_streams.server.administration.describing import PARTITIONS_NAMED_MAX, POSITIONS_A_STEP, ROLES
from amqp_streams.streams import attach
from amqp_streams.streams.management import Request
from amqp_streams.testing_amqp import EnginePair, InMemoryNode
from tests.amqp_streams.server.administration.asking import ask, body_of


def links_of(node: InMemoryNode) -> list[dict[str, Any]]:
    first = body_of(ask(node, "connection", "QUERY"))["connections"][0]
    found: list[dict[str, Any]] = body_of(ask(node, "connection", "READ", first["name"]))["attached"]
    return found


def test_each_kind_of_link_has_a_role() -> None:
    assert ROLES.keys() == {*get_args(attach.Grant), attach.Pending}


def test_links_show_their_role_and_what_they_are_about() -> None:
    node = InMemoryNode({"temps": 3})
    client = EnginePair(node)
    client.sender("temps", properties={"event-streams-partition": proton.symbol("2")})
    client.sender(None)
    client.sender("$management")
    client.receiver("$management")
    client.receiver("temps/$info")
    client.receiver("temps", group="g", credit=5)
    shown: list[Any] = [
        (each["role"], each["address"], each.get("partitions"), each.get("group")) for each in links_of(node)
    ]
    assert shown == [
        ("producer", "temps", ["2"], None),
        ("producer", None, None, None),
        ("requests", "$management", None, None),
        ("answers", "$management", None, None),
        ("information", "temps/$info", None, None),
        ("consumer", "temps", [shown[5][2][0]], "g"),
    ]


def test_a_consumer_shows_its_epoch_lag_and_unsettled_events() -> None:
    node = InMemoryNode({"temps": 1})
    client = EnginePair(node)
    client.receiver("temps", group="g", epoch=7, credit=2)
    node.append("temps", *[b"x"] * 5)
    node.run()
    (link,) = links_of(node)
    assert (link["epoch"], link["events"], link["unsettled"], link["lag"]) == (7, 2, 2, 3)
    assert link["partition-count"] == 1


def test_a_link_on_many_partitions_names_some_and_is_described_in_steps() -> None:
    node = InMemoryNode({"temps": 2 * POSITIONS_A_STEP}, limits=Limits())
    client = EnginePair(node)
    client.receiver("temps", credit=1)
    (link,) = links_of(node)
    assert len(link["partitions"]) == PARTITIONS_NAMED_MAX
    assert link["partition-count"] == 2 * POSITIONS_A_STEP
    name = body_of(ask(node, "connection", "QUERY"))["connections"][0]["name"]
    steps = node.service.node.managing(Request("READ", "connection", name, {}, None, None))
    assert sum(1 for _ in steps) >= 2


@pytest.mark.parametrize("opened", [True, False])
def test_a_connection_that_is_not_open_yet_has_no_container(opened: bool) -> None:
    node = InMemoryNode()
    EnginePair(node, opened=opened)
    node.run()
    (connection,) = node.service.connections
    assert (describing.state(connection) == "open") is opened
    assert (describing.container(connection) is not None) is opened
