"""Figures of groups are those of the links and the cursors that there are."""

from amqp_streams import names
from amqp_streams.node.information.figures import Figures
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, filter_of


def all_of(node: InMemoryNode, *, groups_max: int = 100, lags_max: int = 100) -> Figures:
    return node.service.node.group_figures(groups_max=groups_max, lags_max=lags_max)


def figures(node: InMemoryNode) -> list[tuple[object, ...]]:
    return [
        (each.log, each.group, each.members, each.links, each.waiting, dict(each.lags))
        for each in all_of(node).shown
    ]


def test_a_node_without_groups_has_no_figures_of_them() -> None:
    node = InMemoryNode({"temps": 2})
    pair = EnginePair(node)
    pair.receiver("temps", durable=True)
    pair.receiver("temps", partition=0, epoch=1)
    assert figures(node) == []


def test_members_links_and_waiting_members_are_counted() -> None:
    node = InMemoryNode({"temps": 2, "other": 1})
    first, second = EnginePair(node), EnginePair(node)
    for pair in (first, first, second):
        pair.receiver("temps", group="g")
    second.receiver("other", group="g")
    assert figures(node) == [("temps", "g", 2, 2, 1, {}), ("other", "g", 1, 1, 0, {})]


def test_a_group_s_lag_is_reported_also_without_a_reader() -> None:
    node = InMemoryNode({"temps": 1})
    node.append("temps", b"a", b"b", b"c")
    pair = EnginePair(node)
    receiver = pair.receiver("temps", group="g", durable=True, credit=1, filters=filter_of("@earliest"))
    assert receiver.answered[names.CONSUMER_GROUP] == "g"
    pair.settle(receiver.arrived[0])
    node.run()
    pair.detach(receiver)
    node.append("temps", b"d")
    assert figures(node) == [("temps", "g", 0, 0, 0, {0: 3})]


def test_groups_beyond_the_bounds_are_counted_and_their_positions_not_looked_at() -> None:
    node = InMemoryNode({"temps": 3})
    pair = EnginePair(node)
    for group in ("a", "b", "c", "d"):
        pair.receiver("temps", group=group, durable=True)
    assert ([each.group for each in all_of(node).shown], all_of(node).more) == (["a", "b", "c", "d"], 0)
    few = all_of(node, groups_max=3)
    assert ([each.group for each in few.shown], few.more) == (["a", "b", "c"], 1)
    narrow = all_of(node, lags_max=2)
    assert (len(narrow.shown), narrow.more) == (2, 2)
