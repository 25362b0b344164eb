"""Requests about groups and cursors that have homes: operations and figures."""

from dataclasses import replace

from amqp_streams.streams.consuming.cursors import Cursor, group_key
from tests.amqp_streams.homes.kept_stage import GROUP, Asked, Changing
from tests.amqp_streams.homes.stage import wanted


def test_the_figures_are_of_the_groups_whose_homes_are_here() -> None:
    asked = Changing(GROUP)
    asked.stage.grant("node", 1, replace(wanted("m", 0), user=None))
    asked.buckets.keep(Cursor(group_key("i", "elsewhere"), None, {0: 5}, 7))
    figures = asked.kept.figures(10, 100)
    assert [(each.log, each.group, each.members, each.links) for each in figures.shown] == [
        ("log", "g", 1, 1)
    ]
    assert asked.kept.figures(0, 100).more == 1


def test_groups_and_cursors_are_read_and_changed_by_the_same_operations() -> None:
    kept = Asked().kept
    assert kept.groups().keys() == kept.cursors().keys() == {"READ", "QUERY", "UPDATE", "DELETE"}
