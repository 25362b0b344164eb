"""Requests about groups and cursors that have homes: reading."""

from dataclasses import replace
from typing import Any

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.homes.kept import KEYS_A_STEP
from amqp_streams.node.requests import carry_out
from amqp_streams.streams import management
from amqp_streams.streams.consuming.cursors import Cursor, group_key
from amqp_streams.streams.groups.claims import Claim
from amqp_streams.streams.management import Answer, Request
from amqp_streams.streams.steps import finish
from amqp_streams.testing import MemoryStore
from tests.amqp_streams.homes.kept_stage import GROUP, LINK, Asked, Buckets, Changing, kept_requests
from tests.amqp_streams.homes.stage import LOG, wanted


def test_a_group_is_described_from_what_its_home_has_committed() -> None:
    asked = Asked()
    asked.buckets.keep(Cursor(GROUP, "user", {0: 5}, 7), p1=3)
    body = asked.body("READ", names.GROUP_TYPE, "g")
    assert body[names.CURSOR_USER] == "user"
    assert body[names.CURSOR_ACTIVE] is False


def test_the_home_of_a_group_knows_its_members_and_newer_positions() -> None:
    asked = Asked()
    asked.buckets.home = asked.buckets.keep(Cursor(GROUP, "user", {0: 5}, 7))
    asked.buckets.ownership.claim(Claim("g", 0, None, "one"), 0)
    asked.buckets.live[GROUP] = Cursor(GROUP, "user", {0: 6}, 7)
    body = asked.body("READ", names.GROUP_TYPE, "g")
    assert body[names.CURSOR_ACTIVE] is True
    assert b"one" in repr(body).encode()


def test_lists_have_the_groups_and_cursors_of_all_buckets() -> None:
    asked = Asked()
    for number in range(40):
        asked.buckets.keep(Cursor(group_key("i", f"g{number:02}"), None, {0: number}, 7))
    asked.buckets.keep(Cursor(LINK, None, {0: 1, 1: 2}, 7))
    asked.buckets.keep(Cursor(group_key("other", "elsewhere"), None, {0: 1}, 7))
    groups = asked.body("QUERY", names.GROUP_TYPE)[names.GROUPS]
    assert len(groups) == 40
    assert len(asked.body("QUERY", names.CURSOR_TYPE)[names.CURSORS]) == 41
    assert asked.body("READ", names.CURSOR_TYPE, LINK.id)[names.CURSOR_LINK] == "l"


def test_a_group_of_this_home_that_has_no_states_is_listed() -> None:
    asked = Asked()
    asked.buckets.home = 3
    asked.buckets.ownership.claim(Claim("new", 0, None, "one"), 0)
    assert len(asked.body("QUERY", names.GROUP_TYPE)[names.GROUPS]) == 1


def test_what_does_not_exist_is_not_found() -> None:
    asked = Asked()
    for type_ in (names.GROUP_TYPE, names.CURSOR_TYPE):
        assert asked.ask("READ", type_, "g").status == management.NOT_FOUND
        assert asked.ask("READ", type_, "g", log="missing").status == management.NOT_FOUND
        assert asked.ask("QUERY", type_, log="missing").status == management.NOT_FOUND


def test_many_keys_are_looked_at_in_steps() -> None:
    asked = Asked()
    asked.buckets.values[0] = {f"owner/i/{number}/g": b"" for number in range(5 * KEYS_A_STEP)}
    kept = kept_requests({"log": LOG}, asked.buckets)
    request = Request("QUERY", names.GROUP_TYPE, "", {}, None, None, log="log")
    outcome = kept.groups()["QUERY"](request)
    assert not isinstance(outcome, Answer)
    assert sum(1 for _ in outcome) >= 5


def test_a_group_that_has_asked_its_home_exists_and_this_node_knows_its_own_members() -> None:
    waits = Claim("g", None, None, "waits")
    body = Asked((waits, None)).body("READ", names.GROUP_TYPE, "g")
    assert body[names.CURSOR_ACTIVE] is False
    body = Asked((waits, None), (Claim("g", None, None, "owns"), 1)).body("READ", names.GROUP_TYPE, "g")
    assert body[names.CURSOR_ACTIVE] is True
    assert b"owns" in repr(body).encode()


def test_the_incarnation_of_a_log_may_contain_a_slash() -> None:
    """The id of a topic is base64."""
    log = MemoryStore().create("log", LogSettings(partitions=1), incarnation="a/b+c")
    buckets = Buckets()
    buckets.keep(Cursor(group_key("a/b+c", "g/h"), None, {0: 5}, 7), p0=3)
    buckets.keep(Cursor(group_key("a/b+d", "other"), None, {0: 5}, 7), p0=3)
    kept = kept_requests({"log": log}, buckets)
    request = Request("QUERY", names.GROUP_TYPE, "", {}, None, None, log="log")
    body: Any = finish(carry_out({names.GROUP_TYPE: kept.groups()}, request)).body
    assert len(body[names.GROUPS]) == 1


def test_the_figures_are_of_the_groups_whose_homes_are_here() -> None:
    asked = Changing(GROUP)
    asked.stage.grant("node", 1, replace(wanted("m", 0), user=None))
    asked.buckets.keep(Cursor(group_key("i", "elsewhere"), None, {0: 5}, 7))
    figures = asked.kept.figures(10, 100)
    assert [(each.log, each.group, each.members, each.links) for each in figures.shown] == [
        ("log", "g", 1, 1)
    ]
    assert asked.kept.figures(0, 100).more == 1
