"""Changes of groups and cursors: at the home, and at another node that asks the home."""

from dataclasses import replace
from typing import Any

import pytest

from amqp_streams import names
from amqp_streams.homes.buckets import bucket_of
from amqp_streams.homes.changing.changes import Carried
from amqp_streams.homes.messages import Asked as Question
from amqp_streams.homes.messages import Change, Outcome, Reported
from amqp_streams.homes.protocol.changes import asked_body, asked_of, outcome_body, outcome_of
from amqp_streams.homes.records import HomeRecord
from amqp_streams.node.requests import RequestSteps, carry_out
from amqp_streams.policy import AccessRule, Right
from amqp_streams.streams import management
from amqp_streams.streams.access import Access, Identity, Permissions
from amqp_streams.streams.consuming.cursors import Cursor, CursorKey, encoded, group_key
from amqp_streams.streams.groups.claims import Claim
from amqp_streams.streams.groups.epochs import epoch_change
from amqp_streams.streams.management import Answer, Request
from amqp_streams.wire.types import Symbol
from tests.amqp_streams.homes.kept_stage import GROUP, LINK, Asked, Changing
from tests.amqp_streams.homes.stage import own_cursor, wanted

KINDS = pytest.mark.parametrize(("type_", "key"), [(names.GROUP_TYPE, GROUP), (names.CURSOR_TYPE, LINK)])
MANAGES = frozenset({"manage", "receive", "info"})


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


def test_a_cursor_is_moved_back_while_its_last_positions_are_being_written() -> None:
    """The write that ends later says nothing about the cursor that was moved back."""
    asked = Changing(GROUP)
    link = asked.stage.grant("node", 1, replace(wanted("m", 0), user=None))
    asked.stage.report("node", replace(link, positions=((0, 7),), gone=True))
    steps = asked.begin("UPDATE", names.GROUP_TYPE, "g", offset=Symbol("@earliest"))
    next(each for each in steps if each is not None)
    asked.stage.report("node", Reported(2, replace(wanted("m", 0), user=None)))
    asked.stage.commit()
    assert asked.answer(steps).status == management.OK
    while asked.stage.states.unwritten:
        asked.stage.commit()
    (owns,) = asked.stage.owns("node")
    assert owns.positions == ((0, 0),)
    assert all(dict(each.positions)[0] == 0 for each in asked.stage.stored("node"))


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
    asked.kept.changes.tick()
    assert not wait.over
    del asked.buckets.homes[asked.bucket]
    asked.kept.changes.tick()
    answer = asked.answer(steps)
    assert answer.status == management.IN_DOUBT
    assert "the change may have been made, look whether it was" in answer.description


# -- from another node


class Far(Asked):
    """A node whose user asks; the home is at another node. `lost`: what it asks does not arrive."""

    def __init__(self, key: CursorKey, *, followed: bool = True) -> None:
        super().__init__()
        self.home = Changing(key)
        self.buckets.elsewhere = HomeRecord(1, "other", "b:1")
        self.lost = False
        self.lies: Outcome | None = None
        if followed:
            self.buckets.keep(Cursor(key, None, {0: 5, 1: 6}, 7))

    def answer(
        self, operation: str, type_: str, name: str, permissions: Permissions | None = None, **body: Any
    ) -> Answer:
        """The answer to a request, with whatever the home does for it."""
        given: dict[Any, Any] = dict(body)
        request = Request(operation, type_, name, given, None, None, log="log")
        if permissions is not None:
            request = replace(request, permissions=permissions)
        return self.finish(carry_out(self._types, request))

    def finish(self, steps: RequestSteps) -> Answer:
        now_ms = 10_000
        try:
            while True:
                wait = next(steps)
                if wait is not None and not wait.over:
                    self.deliver()
                    now_ms += 5000
                    self.buckets.asking.tick(now_ms)
        except StopIteration as ended:
            answer: Answer = ended.value
            return answer

    def deliver(self) -> None:
        """The messages between the nodes travel as bytes."""
        while self.buckets.asked:
            asked = asked_of(asked_body(self.buckets.asked.pop()))
            assert isinstance(asked, Question)
            self.buckets.asking.sent(asked.number)
            result = self.lies or self.answered(asked)
            if not self.lost:
                self.buckets.asking.answered("b:1", outcome_of(outcome_body(result)))

    def answered(self, asked: Question) -> Outcome:
        steps = self.home.kept.changes.carry_out(asked)
        try:
            while True:
                wait = next(steps)
                if wait is not None and not wait.over:
                    self.home.stage.commit()
        except StopIteration as ended:
            result: Outcome = ended.value
            return result


def name_of(key: CursorKey) -> str:
    return key.id if key.group is None else key.group


@KINDS
def test_a_cursor_is_moved_at_the_home_for_another_node_which_describes_it(
    type_: str, key: CursorKey
) -> None:
    far = Far(key)
    answer = far.answer("UPDATE", type_, name_of(key), offset=Symbol("@earliest"))
    assert (answer.status, answer.description) == (management.OK, "moved")
    body: Any = answer.body
    assert body[names.CURSOR_UPDATED] == 1234, "as the home has written it, whatever this node has read"
    cursor = far.home.stage.serving.cursors.find(key)
    assert cursor is not None
    assert cursor.positions == {0: 0, 1: 0}


@KINDS
def test_a_cursor_is_removed_at_the_home_for_another_node(type_: str, key: CursorKey) -> None:
    far = Far(key)
    assert far.answer("DELETE", type_, name_of(key)).status == management.NO_CONTENT
    assert not far.home.stage.states.values
    again = far.answer("DELETE", type_, name_of(key))
    assert again.status == management.NOT_FOUND


def test_one_partition_is_moved_at_the_home_for_another_node() -> None:
    far = Far(GROUP)
    assert (
        far.answer("UPDATE", names.GROUP_TYPE, "g", partition="1", offset=Symbol("@earliest")).status == 200
    )
    cursor = far.home.stage.serving.cursors.find(GROUP)
    assert cursor is not None
    assert cursor.positions == {0: 5, 1: 0}


def test_a_group_with_links_at_any_node_is_not_changed() -> None:
    far = Far(GROUP)
    far.home.stage.grant("third", 1, replace(wanted("m", 0), user=None))
    earliest = Symbol("@earliest")
    for answer in (
        far.answer("DELETE", names.GROUP_TYPE, "g"),
        far.answer("UPDATE", names.GROUP_TYPE, "g", offset=earliest),
    ):
        assert answer.status == management.CONFLICT
        assert "has 1 links: close them first" in answer.description


def test_a_change_whose_home_does_not_answer_may_have_been_made() -> None:
    far = Far(GROUP)
    far.lost = True
    answer = far.answer("DELETE", names.GROUP_TYPE, "g")
    assert answer.status == management.IN_DOUBT
    assert "b:1" in answer.description
    assert not far.home.stage.states.values, "it was made"


def test_what_the_request_has_wrong_is_said_by_the_node_that_was_asked() -> None:
    far = Far(GROUP)
    for body in ({}, {"offset": "x"}, {"offset": Symbol("@earliest"), "more": 1}, {"partition": "9"}):
        assert far.answer("UPDATE", names.GROUP_TYPE, "g", **body).status == management.BAD_REQUEST
    missing = next(
        name
        for name in map(str, range(1000))
        if bucket_of("i", Claim(name, None, None, ""), "", "") == far.home.bucket
    )
    assert far.answer("UPDATE", names.GROUP_TYPE, missing, offset=Symbol("@earliest")).status == 404


def rules(*allow: str, user: str = "ann", log: str = "log") -> Permissions:
    given: dict[str, Any] = {"users": [user], "allow": list(allow), "logs": [log]}
    return Access([AccessRule.model_validate(given)]).of(Identity("ann"))


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE"])
@pytest.mark.parametrize(
    ("permissions", "status"),
    [
        (rules("manage"), 200),
        (rules("receive"), 403),
        (rules("info"), 404),
        (rules("manage", log="other"), 403),
        (rules("manage", user="ben"), 403),
    ],
)
def test_the_rights_on_a_group_are_decided_where_the_user_asks(
    operation: str, permissions: Permissions, status: int
) -> None:
    far = Far(GROUP)
    found = far.answer(operation, names.GROUP_TYPE, "g", permissions, offset=Symbol("@earliest")).status
    assert found in {status, 204 if status == 200 else status}
    asked = sum(far.buckets.asking.outcomes.values())
    assert bool(asked) is (status == 200), "a refused request reaches no other node"


def test_a_user_without_the_right_to_manage_changes_its_own_subscription_only() -> None:
    own = rules("receive")
    far = Far(LINK, followed=False)
    far.buckets.keep(Cursor(LINK, "ann", {0: 5, 1: 6}, 7))
    # At the home it belongs to somebody else: it was removed and created again meanwhile.
    answer = far.answer("DELETE", names.CURSOR_TYPE, LINK.id, own)
    assert answer.status == management.FORBIDDEN
    cursor = far.home.stage.serving.cursors.find(LINK)
    assert cursor is not None
    cursor.user = "ann"
    assert far.answer("DELETE", names.CURSOR_TYPE, LINK.id, own).status == management.NO_CONTENT


def test_a_cursor_that_this_node_has_not_read_yet_is_found() -> None:
    far = Far(LINK, followed=False)
    far.buckets.on_refresh = lambda: far.buckets.keep(Cursor(LINK, None, {0: 5, 1: 6}, 7))
    assert far.answer("DELETE", names.CURSOR_TYPE, LINK.id).status == management.NO_CONTENT
    assert far.buckets.refreshes == 1


def asked(change: Change = Change.REMOVE, **given: Any) -> Question:
    made = Question(1, Changing(GROUP).bucket, change, names.GROUP_TYPE, "i", "g", None, None, None, MANAGES)
    return replace(made, **given)


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"bucket": 0}, management.UNAVAILABLE),
        ({"incarnation": "another"}, management.UNAVAILABLE),
        ({"positions": ((2, 5),), "change": Change.MOVE}, management.BAD_REQUEST),
        ({"group": "h"}, management.BAD_REQUEST),
        ({"type": "event-log"}, management.BAD_REQUEST),
        ({"rights": frozenset()}, management.FORBIDDEN),
        ({"rights": frozenset({"receive"})}, management.FORBIDDEN),
        ({"rights": frozenset({"everything"})}, management.FORBIDDEN),
        ({"change": Change.END}, management.BAD_REQUEST),
    ],
)
def test_what_another_node_asks_for_is_checked_before_it_has_an_effect(
    given: dict[str, Any], status: int
) -> None:
    far = Far(GROUP)
    before = dict(far.home.stage.states.values)
    result = far.answered(asked(**given))
    assert result.status == status
    assert result.moved is ("bucket" in given)
    assert far.home.stage.states.values == before


@pytest.mark.parametrize(
    "cursor",
    [
        "{}",
        "not JSON",
        encoded(Cursor(group_key("i", "other"), None, {0: 5}, 7)).decode(),
        encoded(Cursor(GROUP, None, {7: 5}, 7)).decode(),
    ],
)
def test_a_cursor_of_another_node_that_is_not_valid_is_not_shown(cursor: str) -> None:
    far = Far(GROUP)

    far.lies = Outcome(1, 200, "moved", cursor)
    answer = far.answer("UPDATE", names.GROUP_TYPE, "g", offset=Symbol("@earliest"))
    body: Any = answer.body
    assert answer.status == management.OK
    assert body[names.CURSOR_UPDATED] == 7, "what this node has read"


def test_the_rights_of_another_node_are_those_on_one_log() -> None:
    carried = Carried(asked(user="ann", rights=frozenset({"receive"})))
    assert carried.identity.user == "ann"
    assert carried.allows(Right.RECEIVE, "log")
    assert not carried.allows(Right.MANAGE, "log")
    assert not carried.administers


def test_a_group_that_is_known_by_its_epoch_only_is_not_hidden_from_its_members() -> None:
    far = Far(GROUP, followed=False)
    far.buckets.values[far.home.bucket] |= epoch_change("i", "g", 1, 5)
    answer = far.answer("DELETE", names.GROUP_TYPE, "g", rules("receive"))
    assert answer.status == management.FORBIDDEN
    assert "has no right 'manage'" in answer.description
