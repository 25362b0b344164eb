"""Lists and descriptions of groups and cursors: the same at the home and at every other node."""

from typing import Any

import pytest

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.homes.buckets import bucket_of
from amqp_streams.homes.describing.reading import KEYS_A_STEP
from amqp_streams.homes.messages import Reported
from amqp_streams.node.requests import carry_out
from amqp_streams.streams import management
from amqp_streams.streams.consuming.cursors import Cursor, group_key, link_key
from amqp_streams.streams.groups.claims import Claim
from amqp_streams.streams.management import Answer, Request
from amqp_streams.streams.steps import finish
from amqp_streams.testing import MemoryStore
from tests.amqp_streams.homes.kept_stage import GROUP, LINK, Asked, Buckets, kept_requests
from tests.amqp_streams.homes.stage import LOG, Stage, own_cursor, wanted

B = bucket_of("i", Claim("g", None, None, ""), "", "")
"""The bucket of the group `g`."""
OTHER = "127.0.0.1:7"


def serving(*, durable: bool = True) -> Stage:
    """A home of the group `g`: one owner with an epoch, one without, and one that waits."""
    stage = Stage()
    first = stage.grant("one", 1, wanted("a", 0, 5, durable=durable))
    stage.grant("two", 1, wanted("b", 1, durable=durable))
    stage.report("one", first, Reported(2, wanted("c", durable=durable)))
    return stage


@pytest.mark.parametrize("durable", [True, False])
def test_a_group_is_described_and_listed_in_the_same_way_at_its_home_and_elsewhere(durable: bool) -> None:
    stage = serving(durable=durable)
    here, elsewhere = Asked(), Asked()
    here.buckets.at(stage, B)
    elsewhere.buckets.at(stage, B, OTHER)
    for asked in (("READ", names.GROUP_TYPE, "g"), ("QUERY", names.GROUP_TYPE)):
        assert here.ask(*asked).body == elsewhere.ask(*asked).body
    described = elsewhere.described("READ", names.GROUP_TYPE, "g")
    owners = [(each["member"], each["epoch"]) for each in described["partitions"]]
    assert owners == [("a", 5), ("b", 0)]
    assert (described["waiting"], described["active"]) == (1, True)
    assert "members-known" not in described


def test_positions_are_those_of_the_home_and_not_those_that_this_node_has_read() -> None:
    asked, stage = Asked(), serving()
    asked.buckets.at(stage, B, OTHER)
    cursor = stage.serving.cursors.find(GROUP)
    assert cursor is not None
    stage.serving.cursors.advance(cursor, 0, 3)
    described = asked.described("READ", names.GROUP_TYPE, "g")
    assert [each["position-next"] for each in described["partitions"]] == [3, 0]
    assert described["user"] == "user"


def test_a_link_that_owns_a_partition_but_was_not_granted_it_waits() -> None:
    """Its owner record is not durable yet, or an earlier grant may still be in force."""
    asked, stage = Asked(), Stage()
    stage.report("one", Reported(1, wanted("a", 0)))
    asked.buckets.at(stage, B, OTHER)
    described = asked.described("READ", names.GROUP_TYPE, "g")
    assert [each["member"] for each in described["partitions"]] == [None, None]
    assert described["waiting"] == 1


def test_the_cursor_of_a_link_is_active_wherever_it_is_attached() -> None:
    key = link_key("i", "c", "link")
    bucket = bucket_of("i", None, "c", "link")
    stage = Stage()
    stage.grant("one", 1, own_cursor("c"))
    here, elsewhere = Asked(), Asked()
    here.buckets.at(stage, bucket)
    elsewhere.buckets.at(stage, bucket, OTHER)
    for asked in (("READ", names.CURSOR_TYPE, key.id), ("QUERY", names.CURSOR_TYPE)):
        assert here.ask(*asked).body == elsewhere.ask(*asked).body
    assert elsewhere.described("READ", names.CURSOR_TYPE, key.id)["active"] is True


def test_the_cursor_of_a_group_shows_the_owners_of_its_partitions() -> None:
    asked = Asked()
    asked.buckets.at(serving(), B, OTHER)
    described = asked.described("READ", names.CURSOR_TYPE, GROUP.id)
    assert [each["member"] for each in described["partitions"]] == ["a", "b"]


def test_a_list_asks_each_home_once_and_only_about_its_page() -> None:
    asked = Asked()
    for number in range(300):
        asked.buckets.keep(Cursor(group_key("i", f"g{number:03}"), None, {0: 0, 1: 0}, 7))
    for bucket, values in enumerate(asked.buckets.values):
        asked.buckets.at(Stage(values), bucket, f"node {bucket % 3}")
    groups = asked.shown("QUERY", names.GROUP_TYPE, offset=100, count=50)
    assert [each["name"] for each in groups] == [f"g{number:03}" for number in range(100, 150)]
    assert sorted(address for address, _ in asked.buckets.inquired) == ["node 0", "node 1", "node 2"]
    assert sum(len(inquiry.subjects) for _, inquiry in asked.buckets.inquired) == 50
    body: Any = asked.ask("QUERY", names.GROUP_TYPE, offset=100, count=50).body
    assert body[names.QUERY_NEXT] == 150
    last: Any = asked.ask("QUERY", names.GROUP_TYPE, offset=250).body
    assert names.QUERY_NEXT not in last
    assert len(last[names.GROUPS]) == 50


def test_one_home_that_does_not_answer_costs_only_its_own_groups() -> None:
    asked, stage = Asked((Claim("far", 1, None, "mine"), 1)), serving()
    asked.buckets.at(stage, B, OTHER)
    far = asked.buckets.keep(Cursor(group_key("i", "far"), "user", {0: 4}, 7), p1=3)
    assert far != B
    asked.buckets.at(Stage(), far, "silent:1")
    asked.buckets.others["silent:1"].silent = True
    silent, answered = asked.shown("QUERY", names.GROUP_TYPE)
    assert (silent["name"], answered["name"]) == ("far", "g")
    assert "members-known" not in answered
    assert answered["partitions"][0]["member"] == "a"
    # What this node knows: what it has read, and its own link.
    assert silent["members-known"] is False
    assert "the home silent:1 did not answer in 2 s" in silent["members-reason"]
    owners = [(each["epoch"], each["member"], each["position-next"]) for each in silent["partitions"]]
    assert owners == [(0, None, 4), (3, "mine", None)]


def test_without_a_home_this_node_shows_what_it_knows() -> None:
    asked = Asked()
    asked.buckets.keep(Cursor(GROUP, "user", {0: 5}, 7), p1=3)
    asked.buckets.keep(Cursor(LINK, None, {0: 1, 1: 2}, 7))
    described = asked.described("READ", names.GROUP_TYPE, "g")
    assert described["user"] == "user"
    assert (described["active"], described["members-known"]) == (False, False)
    assert described["members-reason"] == "no node decides about it at the moment"
    assert asked.described("READ", names.CURSOR_TYPE, LINK.id)["active"] is None


def test_a_group_that_has_asked_its_home_exists_and_this_node_knows_its_own_members() -> None:
    waits = Claim("g", None, None, "waits")
    described = Asked((waits, None)).described("READ", names.GROUP_TYPE, "g")
    assert (described["active"], described["waiting"]) == (True, 1)
    asked = Asked((waits, None), (Claim("g", None, None, "owns"), 1))
    described = asked.described("READ", names.GROUP_TYPE, "g")
    assert described["partitions"][1]["member"] == "owns"


def test_a_group_that_its_home_does_not_know_does_not_exist() -> None:
    """This node has not read yet that it was removed."""
    asked = Asked()
    asked.buckets.keep(Cursor(GROUP, None, {0: 5}, 7))
    asked.buckets.at(Stage(), B, OTHER)
    assert asked.ask("READ", names.GROUP_TYPE, "g").status == management.NOT_FOUND
    assert asked.ask("READ", names.CURSOR_TYPE, GROUP.id).status == management.NOT_FOUND
    assert asked.shown("QUERY", names.GROUP_TYPE) == []


def test_a_list_says_whose_groups_may_be_missing() -> None:
    """A group with links and without states is known to its home only."""
    asked, stage = Asked(), serving(durable=False)
    stage.states.values.pop(next(key for key in stage.states.values if key.startswith("epoch/")))
    asked.buckets.at(stage, B, OTHER)
    assert [each["name"] for each in asked.shown("QUERY", names.GROUP_TYPE)] == ["g"]
    assert len(asked.buckets.inquired) == 2  # one for the names, one for the page
    asked.buckets.others[OTHER].silent = True
    body: Any = asked.ask("QUERY", names.GROUP_TYPE).body
    assert body[names.GROUPS] == []
    assert body[names.QUERY_INCOMPLETE] == [f"the home {OTHER} did not answer in 2 s"]
    del asked.buckets.others[OTHER]
    body = asked.ask("QUERY", names.GROUP_TYPE).body
    assert body[names.QUERY_INCOMPLETE] == ["no node decides about it at the moment"]


def test_lists_have_the_groups_and_cursors_of_all_buckets_in_order() -> None:
    asked = Asked()
    for number in range(40):
        asked.buckets.keep(Cursor(group_key("i", f"g{number:02}"), None, {0: number}, 7), p0=1)
    asked.buckets.keep(Cursor(LINK, None, {0: 1, 1: 2}, 7))
    asked.buckets.keep(Cursor(group_key("other", "elsewhere"), None, {0: 1}, 7))
    groups = asked.shown("QUERY", names.GROUP_TYPE)
    assert [each["name"] for each in groups] == [f"g{number:02}" for number in range(40)]
    cursors = asked.shown("QUERY", names.CURSOR_TYPE)
    assert [each["group"] for each in cursors] == [*(f"g{number:02}" for number in range(40)), None]
    assert asked.described("READ", names.CURSOR_TYPE, LINK.id)["link"] == "l"


def test_what_does_not_exist_is_not_found() -> None:
    asked = Asked()
    for type_ in (names.GROUP_TYPE, names.CURSOR_TYPE):
        assert asked.ask("READ", type_, "g").status == management.NOT_FOUND
        assert asked.ask("READ", type_, "").status == management.NOT_FOUND
        assert asked.ask("READ", type_, "g", log="missing").status == management.NOT_FOUND
        assert asked.ask("QUERY", type_, log="missing").status == management.NOT_FOUND


def test_many_keys_are_looked_at_in_steps() -> None:
    asked = Asked()
    asked.buckets.values[0] = {f"owner/j/{number}/g": b"" for number in range(5 * KEYS_A_STEP)}
    kept = kept_requests({"log": LOG}, asked.buckets)
    request = Request("QUERY", names.GROUP_TYPE, "", {}, None, None, log="log")
    outcome = kept.groups()["QUERY"](request)
    assert not isinstance(outcome, Answer)
    assert sum(1 for _ in outcome) >= 5


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
