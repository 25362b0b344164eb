"""Changes that this node asks other homes for: what is sent, when, and what the outcome says."""

from dataclasses import replace

import pytest

from amqp_streams.homes.changing.asking import (
    AGAIN_MS,
    OPEN_A_HOME_MAX,
    OPEN_A_HOME_USER_MAX,
    OPEN_MAX,
    OPEN_USER_MAX,
    WITHIN_MS,
    Asking,
    Question,
)
from amqp_streams.homes.messages import Asked, Change, Outcome
from amqp_streams.homes.protocol.changes import ASKED_BYTES_MAX
from amqp_streams.homes.records import HomeRecord

CHANGE = Asked(0, 3, Change.REMOVE, "consumer-group", "i", "g", None, None, "user")
HOME = HomeRecord(5, "other", "b:1")


class Elsewhere:
    """Another node that is the home. `asked`: what was handed to its connection."""

    def __init__(self) -> None:
        self.homes: dict[int, HomeRecord] = {3: HOME}
        self.here = False
        self.reason: str | None = None
        self.asked: list[tuple[str, int]] = []
        self.forgotten: list[tuple[str, int]] = []
        self.now_ms = 1000
        self.asking = Asking("me", self)

    def record(self, bucket: int) -> HomeRecord | None:
        return self.homes.get(bucket)

    def is_here(self, bucket: int) -> bool:
        return self.here

    def ask(self, address: str, asked: Asked) -> bool:
        self.asked.append((address, asked.number))
        return address != "mine:1"

    def forget(self, address: str, number: int) -> None:
        self.forgotten.append((address, number))

    def problem(self, address: str) -> str | None:
        return self.reason

    def begin(self, asked: Asked = CHANGE) -> Question:
        return self.asking.begin(asked, self.now_ms, self.now_ms + WITHIN_MS)

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        self.asking.tick(self.now_ms)


def outcome(question: Question) -> Outcome:
    assert question.over.over
    assert question.result is not None
    return question.result


def of_user(number: int) -> Asked:
    return replace(CHANGE, user=f"user {number}")


def test_a_question_is_sent_once_and_ends_with_the_answer_of_its_home() -> None:
    other = Elsewhere()
    question = other.begin()
    assert other.asked == [("b:1", 1)]
    other.asking.sent(1)
    other.pass_ms(WITHIN_MS // 2)
    assert len(other.asked) == 1
    other.asking.answered("b:1", Outcome(1, 204, "deleted"))
    assert outcome(question).status == 204
    other.pass_ms(WITHIN_MS)
    assert outcome(question).status == 204
    assert len(other.asking) == 0
    assert {name: count for name, count in other.asking.outcomes.items() if count} == {"answered": 1}


def test_only_the_node_that_was_asked_can_answer() -> None:
    other = Elsewhere()
    question = other.begin()
    other.asking.sent(1)
    other.asking.answered("c:1", Outcome(1, 204, "deleted"))
    other.asking.lost("c:1", 1)
    other.asking.not_taken("c:1", 1)
    other.asking.answered("b:1", Outcome(99, 204, "deleted"))
    assert not question.over.over


def test_a_home_that_is_not_reached_is_named_with_the_remedy_and_nothing_was_changed() -> None:
    other = Elsewhere()
    other.reason = "Connect call failed"
    question = other.begin()
    other.pass_ms(WITHIN_MS - 1)
    assert not question.over.over
    other.pass_ms(1)
    result = outcome(question)
    assert result.status == 503
    assert "b:1, is not reached: Connect call failed. Nothing was changed: send" in result.description
    assert other.forgotten == [("b:1", 1)], "it must not be sent later"


@pytest.mark.parametrize("lost", [True, False])
def test_a_change_that_was_sent_and_is_not_answered_may_have_been_made(lost: bool) -> None:
    other = Elsewhere()
    question = other.begin()
    other.asking.sent(1)
    if lost:
        other.asking.lost("b:1", 1)
    else:
        other.pass_ms(WITHIN_MS)
    result = outcome(question)
    assert result.status == 504
    assert "b:1, did not answer in time: the change may have been made. Look" in result.description
    assert len(other.asked) == 1, "it is not sent again"


def test_a_home_of_an_earlier_version_is_named() -> None:
    other = Elsewhere()
    question = other.begin()
    other.asking.not_taken("b:1", 1)
    result = outcome(question)
    assert result.status == 501
    assert "b:1, is of an earlier version" in result.description


def test_a_node_that_is_not_the_home_any_more_sends_the_question_to_the_next() -> None:
    other = Elsewhere()
    question = other.begin()
    other.asking.sent(1)
    other.homes[3] = HomeRecord(6, "third", "c:1")
    other.asking.answered("b:1", Outcome(1, 503, "elsewhere", moved=True))
    other.pass_ms(AGAIN_MS - 1)
    assert len(other.asked) == 1
    other.pass_ms(1)
    assert other.asked[1:] == [("c:1", 1)]
    other.asking.sent(1)
    other.asking.answered("b:1", Outcome(1, 204, "late"))
    assert not question.over.over
    other.asking.answered("c:1", Outcome(1, 204, "deleted"))
    assert outcome(question).description == "deleted"


def test_a_home_that_waits_for_its_lease_is_asked_again() -> None:
    other = Elsewhere()
    other.begin()
    other.asking.sent(1)
    other.asking.answered("b:1", Outcome(1, 503, "elsewhere", moved=True))
    other.pass_ms(AGAIN_MS)
    assert other.asked == [("b:1", 1)] * 2


def test_a_question_that_waits_for_a_connection_follows_the_home() -> None:
    other = Elsewhere()
    other.begin()
    other.homes[3] = HomeRecord(6, "third", "c:1")
    other.pass_ms(50)
    assert other.forgotten == [("b:1", 1)]
    assert other.asked == [("b:1", 1), ("c:1", 1)]


@pytest.mark.parametrize("record", [None, replace(HOME, let_go=True), HomeRecord(5, "me", "mine:1")])
def test_without_a_home_a_question_waits_for_one(record: HomeRecord | None) -> None:
    other = Elsewhere()
    other.homes = {} if record is None else {3: record}
    question = other.begin()
    other.pass_ms(3000)
    assert not other.asked
    other.homes[3] = HOME
    other.pass_ms(50)
    assert other.asked == [("b:1", 1)]
    assert not question.over.over


def test_without_a_home_until_the_end_nothing_was_changed() -> None:
    other = Elsewhere()
    other.homes[3] = replace(HOME, let_go=True)
    question = other.begin()
    other.pass_ms(WITHIN_MS)
    result = outcome(question)
    assert result.status == 503
    assert (
        "no node decides about this at the moment (the last one was b:1). Nothing was changed"
        in result.description
    )


def test_a_home_that_comes_here_ends_the_question_without_an_outcome() -> None:
    other = Elsewhere()
    other.homes.clear()
    question = other.begin()
    other.here = True
    other.pass_ms(50)
    assert question.over.over
    assert question.result is None
    assert not other.asked


def test_a_question_that_nobody_waits_for_is_forgotten() -> None:
    other = Elsewhere()
    other.asking.forget(other.begin())
    assert other.forgotten == [("b:1", 1)]
    assert len(other.asking) == 0


def test_one_home_that_is_silent_takes_no_more_than_its_share() -> None:
    other = Elsewhere()
    questions = [other.begin(of_user(number)) for number in range(OPEN_A_HOME_MAX + 1)]
    assert outcome(questions[-1]).status == 503
    assert "b:1" in outcome(questions[-1]).description
    other.homes[4] = HomeRecord(1, "third", "c:1")
    assert not other.begin(replace(CHANGE, bucket=4)).over.over


def test_all_questions_have_a_limit() -> None:
    other = Elsewhere()
    other.homes = {number: HomeRecord(1, "other", f"b:{number}") for number in range(16)}
    for number in range(OPEN_MAX):
        other.begin(replace(of_user(number), bucket=number % 16))
    result = outcome(other.begin())
    assert result.status == 503
    assert f"more than {OPEN_MAX} requests" in result.description
    assert len(other.asking) == OPEN_MAX


def test_one_user_takes_half_of_a_home_and_half_of_all_questions() -> None:
    other = Elsewhere()
    questions = [other.begin() for _ in range(OPEN_A_HOME_USER_MAX + 1)]
    assert [each.over.over for each in questions] == [*[False] * OPEN_A_HOME_USER_MAX, True]
    assert f"or {OPEN_A_HOME_USER_MAX} of yours, wait" in outcome(questions[-1]).description
    assert not other.begin(replace(CHANGE, user="another")).over.over
    other.homes = {number: HomeRecord(1, "other", f"b:{number}") for number in range(16)}
    for number in range(OPEN_USER_MAX):
        other.begin(replace(CHANGE, bucket=number % 16))
    assert len(other.asking) == OPEN_USER_MAX + 1
    assert outcome(other.begin()).status == 503
    assert not other.begin(replace(CHANGE, user="another", bucket=5)).over.over


def test_a_question_that_no_frame_can_have_is_refused_here() -> None:
    """At the other node, it would cost the connection."""
    other = Elsewhere()
    result = outcome(other.begin(replace(CHANGE, user="u" * ASKED_BYTES_MAX)))
    assert result.status == 400
    assert "are too long" in result.description
    assert not other.asked
