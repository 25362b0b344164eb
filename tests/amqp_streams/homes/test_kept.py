"""Requests about groups and cursors that have homes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from amqp_streams import names
from amqp_streams.config import GroupSettings, Limits, LogSettings
from amqp_streams.homes.buckets import BUCKETS, bucket_of
from amqp_streams.homes.kept import KEYS_A_STEP, KeptRequests
from amqp_streams.homes.serving import Serving
from amqp_streams.node.requests import RequestSteps, carry_out
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams import management
from amqp_streams.streams.consuming.cursors import Cursor, CursorKey, encoded, group_key, link_key
from amqp_streams.streams.groups.claims import Claim
from amqp_streams.streams.groups.epochs import epoch_change
from amqp_streams.streams.groups.ownership import Ownership
from amqp_streams.streams.management import Answer, Request
from amqp_streams.streams.steps import finish
from amqp_streams.testing import MemoryStore
from amqp_streams.wire.types import Symbol
from tests.amqp_streams.homes.stage import LOG, Stage, own_cursor, wanted

GROUP = group_key("i", "g")
LINK = link_key("i", "c", "l")


class Buckets:
    """States, and one bucket whose home may be here."""

    def __init__(self) -> None:
        self.values: list[dict[str, bytes]] = [{} for _ in range(BUCKETS)]
        self.home: int | None = None
        self.ownership = Ownership(2, GroupSettings())
        self.live: dict[CursorKey, Cursor] = {}
        self.homes: dict[int, Serving] = {}

    def keep(self, cursor: Cursor, **epochs: int) -> int:
        """Store a cursor, and epochs of its group; returns the bucket."""
        key = cursor.key
        claim = None if key.group is None else Claim(key.group, None, None, "")
        bucket = bucket_of(key.incarnation, claim, key.container or "", key.link or "")
        self.values[bucket][key.state] = encoded(cursor)
        for partition, epoch in epochs.items():
            self.values[bucket] |= epoch_change(
                key.incarnation, key.group or "", int(partition.removeprefix("p")), epoch
            )
        return bucket

    def states(self, bucket: int) -> Mapping[str, bytes]:
        return self.values[bucket]

    def owned(self, bucket: int, _log: StoredLog) -> Ownership | None:
        return self.ownership if bucket == self.home else None

    def cursor(self, bucket: int, key: CursorKey) -> Cursor | None:
        return self.live.get(key) if bucket == self.home else None

    def serving(self, bucket: int) -> Serving | None:
        return self.homes.get(bucket)

    def uses(self, bucket: int, key: CursorKey) -> bool | None:
        return key in self.live if bucket == self.home else None


class Asked:
    def __init__(self, *links: tuple[Claim, int | None]) -> None:
        self.links = links
        self.buckets = Buckets()
        self.kept = KeptRequests({"log": LOG}, self.buckets, self._links, GroupSettings(), Limits())
        self._types = {names.GROUP_TYPE: self.kept.groups(), names.CURSOR_TYPE: self.kept.cursors()}

    def _links(self, incarnation: str, group: str) -> list[tuple[Claim, int | None]]:
        return [each for each in self.links if incarnation == "i" and each[0].group == group]

    def body(self, *asked: str) -> Any:
        return self.ask(*asked).body

    def ask(self, operation: str, type_: str, name: str = "", log: str = "log") -> Answer:
        request = Request(operation, type_, name, {names.INFO_LOG: log}, None, None, log=log)
        return finish(carry_out(self._types, request))


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


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE"])
@pytest.mark.parametrize("type_", [names.GROUP_TYPE, names.CURSOR_TYPE])
def test_a_change_needs_the_home(operation: str, type_: str) -> None:
    asked = Asked()
    asked.buckets.keep(Cursor(GROUP, "user", {0: 5}, 7))
    answer = asked.ask(operation, type_, "g" if type_ == names.GROUP_TYPE else GROUP.id)
    assert answer.status == management.NOT_IMPLEMENTED
    assert "another node decides about this" in answer.description


class Changing(Asked):
    """A group and a subscription whose home is here."""

    def __init__(self, key: CursorKey) -> None:
        super().__init__()
        self.bucket = self.buckets.home = self.buckets.keep(Cursor(key, None, {0: 5, 1: 6}, 7))
        self.stage = Stage(self.buckets.values[self.bucket])
        self.stage.serving.wall_ms = 1234
        self.buckets.homes[self.bucket] = self.stage.serving

    def begin(self, operation: str, type_: str, name: str, **body: Any) -> RequestSteps:
        given: dict[Any, Any] = dict(body)
        request = Request(operation, type_, name, given, None, None, log="log")
        return carry_out(self._types, request)

    def answer(self, steps: RequestSteps) -> Answer:
        """The answer, after the transactions that it waits for."""
        try:
            while True:
                wait = next(steps)
                if wait is not None and not wait.over:
                    self.stage.commit()
        except StopIteration as ended:
            answer: Answer = ended.value
            return answer


@pytest.mark.parametrize(("type_", "key"), [(names.GROUP_TYPE, GROUP), (names.CURSOR_TYPE, LINK)])
def test_a_cursor_is_moved_at_its_home_and_the_answer_waits_for_the_topic(type_: str, key: CursorKey) -> None:
    asked = Changing(key)
    name = "g" if key is GROUP else key.id
    steps = asked.begin("UPDATE", type_, name, offset=Symbol("@earliest"))
    wait = next(each for each in steps if each is not None)
    assert not wait.over
    (changes,) = [asked.stage.commit()]
    assert list(changes) == [key.state]
    assert wait.over
    answer = asked.answer(steps)
    assert answer.status == management.OK
    assert answer.body[names.CURSOR_UPDATED] == 1234
    cursor = asked.stage.serving.cursors.find(key)
    assert cursor is not None
    assert cursor.positions == {0: 0, 1: 0}


def test_positions_that_links_have_moved_are_reported_although_another_cursor_is_reset() -> None:
    asked = Changing(GROUP)
    link = asked.stage.grant("node", 1, replace(own_cursor("other"), user=None))
    asked.stage.report("node", replace(link, positions=((0, 7), (1, 4)), urgent=True))
    answer = asked.answer(asked.begin("UPDATE", names.GROUP_TYPE, "g", offset=Symbol("@earliest")))
    assert answer.status == management.OK
    (stored,) = asked.stage.stored("node")
    assert stored.positions == ((0, 7), (1, 4))


def test_a_removed_group_begins_anew_and_its_links_cannot_continue() -> None:
    asked = Changing(GROUP)
    held = asked.stage.grant("node", 1, replace(wanted("m", 0, 3), user=None))
    assert asked.answer(asked.begin("DELETE", names.GROUP_TYPE, "g")).status == management.CONFLICT
    asked.stage.report("node")
    assert asked.answer(asked.begin("DELETE", names.GROUP_TYPE, "g")).status == management.NO_CONTENT
    assert not asked.stage.states.values
    again = asked.stage.grant("node", 2, replace(wanted("m", 0), user=None))
    assert (again.epoch, again.positions) == (0, ((0, 0),))
    assert held.number != again.number


def test_a_removed_subscription_leaves_nothing() -> None:
    asked = Changing(LINK)
    steps = asked.begin("DELETE", names.CURSOR_TYPE, LINK.id)
    assert asked.answer(steps).status == management.NO_CONTENT
    assert not asked.stage.states.values
    asked.buckets.values[asked.bucket].clear()
    steps = asked.begin("DELETE", names.CURSOR_TYPE, LINK.id)
    assert asked.answer(steps).status == management.NOT_FOUND


def test_a_change_whose_home_moves_is_answered_as_in_doubt() -> None:
    asked = Changing(GROUP)
    steps = asked.begin("DELETE", names.GROUP_TYPE, "g")
    wait = next(each for each in steps if each is not None)
    asked.kept.tick()
    assert not wait.over
    del asked.buckets.homes[asked.bucket]
    asked.kept.tick()
    answer = asked.answer(steps)
    assert answer.status == management.SERVER_ERROR
    assert "look whether the change was made" in answer.description


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
    kept = KeptRequests(
        {"log": LOG}, asked.buckets, lambda _incarnation, _group: (), GroupSettings(), Limits()
    )
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
    kept = KeptRequests({"log": log}, buckets, lambda _incarnation, _group: (), GroupSettings(), Limits())
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
