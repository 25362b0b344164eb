"""What a node says about its homes to its operators."""

from typing import Any

from amqp_streams.homes.leases import Times
from amqp_streams.server.homes.figures import home_figures
from amqp_streams.testing_amqp import EnginePair, Receiving, filter_of
from tests.homed_node import HomedNode


def homed() -> HomedNode:
    node = HomedNode({"temps": 2})
    node.append("temps", b"0", b"1")
    return node


def member(node: HomedNode, container: str, **given: Any) -> tuple[EnginePair, Receiving]:
    pair = EnginePair(node, container=container)
    options: dict[str, Any] = {
        "name": "link", "durable": True, "filters": filter_of("@earliest"), "credit": 10,
    } | given  # fmt: skip
    return pair, pair.receiver("temps", **options)


def figures(node: HomedNode) -> dict[str, dict[tuple[str, ...], float]]:
    found = home_figures(node.homes.home, Times(), node.clock())
    return {each.name: dict(each.samples) for each in found}


def total(node: HomedNode, name: str) -> float:
    return sum(figures(node)[name].values())


def test_groups_cursors_and_links_count_at_the_buckets_that_have_them() -> None:
    node = homed()
    assert figures(node)["home_buckets"] == {(str(number),): 1.0 for number in range(16)}
    assert total(node, "home_links") == total(node, "home_groups") == total(node, "home_cursors") == 0
    member(node, "a", group="g")
    member(node, "b", group="g")
    member(node, "c")
    assert total(node, "home_links") == 3
    assert total(node, "home_groups") == 1
    assert total(node, "home_cursors") == 2
    used = [label for label, links in figures(node)["home_links"].items() if links]
    assert all(figures(node)["home_lease_age_seconds"][label] < 3 for label in used)


def test_decisions_count_with_the_time_that_links_waited() -> None:
    node = homed()
    pair, _ = member(node, "a", group="g")
    member(node, "b", group="g")
    assert figures(node)["home_decisions"] == {("granted",): 2, ("ended",): 0}
    _, waits = member(node, "c", group="g")
    assert waits.pending
    node.advance(1500)
    before = total(node, "home_decision_seconds")
    node.disconnect(pair)
    node.advance(500)
    assert not waits.pending
    assert figures(node)["home_decisions"][("granted",)] == 3
    assert total(node, "home_decision_seconds") >= before + 1.5
    _, refused = member(node, "d", group="g", partition="0")
    assert refused.refused is not None
    assert figures(node)["home_decisions"][("ended",)] == 1
