"""Changes in flight: their order, those whose client has left, and calls that cannot wait."""

import threading
from itertools import permutations
from pathlib import Path

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.storage.changes import logs
from amqp_streams.storage.disk.files import RealFiles
from amqp_streams.storage.ports import LATER, ReadRequest, StoredLog
from amqp_streams.storage.questions import Create, Delete, Find, Question, Update
from amqp_streams.testing import FaultyFiles
from tests.amqp_streams.storage.conftest import open_real
from tests.amqp_streams.storage.held import Asked, HeldHand, open_held

CREATE = Create("log", LogSettings(), "2")
UPDATE = Update("log", LogSettings(retention_ms=5000))
DELETE = Delete("log")


def opened() -> HeldHand:
    hand = open_held(FaultyFiles())
    hand.store.create("log", LogSettings(), incarnation="1")
    hand.work()
    return hand


def outcome(asked: Asked) -> object:
    """The incarnation and the retention of the answer, or the error."""
    if asked.refusal is not None:
        return type(asked.refusal)
    try:
        answer = asked.again() if asked.first is LATER else asked.first
    except (ValueError, KeyError) as error:
        return type(error)
    assert answer is not LATER
    return (answer.incarnation, answer.settings.retention_ms) if isinstance(answer, StoredLog) else None


def expected(questions: tuple[Question, ...]) -> list[object]:
    """The answers if each question waits for the one before it."""
    log: tuple[str, int | None] | None = ("1", None)
    answers: list[object] = []
    for question in questions:
        match question:
            case Create() if log is not None:
                answers.append(ValueError)
            case Create(_, _, incarnation):
                log = (incarnation, None)
                answers.append(log)
            case _ if log is None:
                answers.append(KeyError)
            case Update(_, settings):
                log = (log[0], settings.retention_ms)
                answers.append(log)
            case _:
                log = None
                answers.append(None)
    return answers


@pytest.mark.parametrize(
    "questions",
    [*permutations((CREATE, UPDATE, DELETE)), (DELETE, DELETE, CREATE, CREATE, UPDATE, UPDATE)],
    ids=lambda questions: "-".join(type(each).__name__ for each in questions),
)
def test_changes_of_a_log_happen_in_the_order_of_the_questions(questions: tuple[Question, ...]) -> None:
    hand = opened()
    asked = [hand.ask_later(question) for question in questions]
    hand.work()
    assert [outcome(each) for each in asked] == expected(questions)
    assert all(each.calls == (each.first is LATER) for each in asked)
    assert all(each.request.pending is None for each in asked)


def test_changes_of_different_logs_do_not_wait_for_each_other() -> None:
    hand = opened()
    before = hand.ask_later(DELETE)
    other = hand.ask_later(Create("other", LogSettings(), "o"))
    hand.held.keeper.run()
    hand.loop.run_ready()
    assert before.waits, "it waits for the writer"
    assert other.again() is hand.store.logs["other"]
    assert hand.ask_later(Find("other")).first is hand.store.logs["other"]


def test_a_change_whose_request_was_cancelled_happens_and_is_not_reported() -> None:
    hand = opened()
    running, waiting = hand.ask_later(UPDATE), hand.ask_later(DELETE)
    running.request.cancel()
    waiting.request.cancel()
    hand.work()
    assert not hand.store.logs
    assert running.calls == waiting.calls == 0


def test_a_request_with_another_question_gives_up_the_one_before() -> None:
    hand = opened()
    asked = hand.ask_later(UPDATE)
    assert hand.store.ask(DELETE, asked.request) is LATER
    hand.work()
    assert asked.calls == 1
    assert hand.store.ask(DELETE, asked.request) is None
    assert not hand.store.logs


class PausedFiles(RealFiles):
    """The files of this machine, on a disk that does not rename until `resumed`."""

    def __init__(self) -> None:
        self.resumed = threading.Event()

    def rename(self, source: Path, target: Path) -> None:
        self.resumed.wait(30)
        super().rename(source, target)


@pytest.mark.parametrize("question", [Create("new", LogSettings(), "n"), UPDATE, DELETE])
def test_commits_and_questions_continue_while_the_disk_pauses_in_a_change(
    question: Question, tmp_path: Path
) -> None:
    files = PausedFiles()
    files.resumed.set()
    hand = open_real(tmp_path, files=files)
    hand.store.create("log", LogSettings(), incarnation="1")
    other = hand.store.create("other", LogSettings(), incarnation="o").partitions[0]
    files.resumed.clear()
    ready: list[None] = []
    request = ReadRequest("test", lambda: ready.append(None))
    assert hand.store.ask(question, request) is LATER
    for number in range(10):
        assert hand.write(other, b"x") == number
        assert hand.ask(Find("other")) is hand.store.logs["other"]
    assert not ready
    files.resumed.set()
    hand.loop.run_until(lambda: bool(ready))
    assert hand.store.ask(question, request) is hand.store.logs.get(getattr(question, "name", ""))
    hand.store.close()


@pytest.mark.parametrize("stages", [0, 1, 2])
def test_a_call_that_cannot_wait_ends_the_changes_in_flight_first(stages: int) -> None:
    hand = opened()
    deletion, creation = hand.ask_later(DELETE), hand.ask_later(CREATE)
    for _ in range(stages):
        hand.held.writer.run()
        hand.held.keeper.run()
        hand.loop.run_ready()
    with pytest.raises(ValueError, match="exists"):
        hand.store.create("log", LogSettings(), incarnation="3")
    assert outcome(deletion) is None
    assert outcome(creation) == ("2", None)
    hand.store.delete("log")
    assert not hand.store.logs
    # The loop comes to the tasks of the changes only now.
    hand.work()
    assert (deletion.calls, creation.calls) == (1, 1)


def test_the_end_of_the_store_waits_for_changes() -> None:
    files = FaultyFiles()
    hand = open_held(files)
    asked = [hand.ask_later(Create("log", LogSettings(partitions=200), "1")), hand.ask_later(UPDATE)]
    other = hand.ask_later(Create("other", LogSettings(), "o"))
    assert hand.store.close()
    assert [each.calls for each in (*asked, other)] == [1, 1, 1]
    hand = open_held(files)
    assert sorted(hand.store.logs) == ["log", "other"]


def test_what_follows_from_a_change_is_kept_when_the_store_ends() -> None:
    """The node removes the cursors of a deleted log, which are states."""
    files = FaultyFiles()
    hand = open_held(files)
    hand.store.create("log", LogSettings(), incarnation="1")
    hand.store.states.write({"cursor": b"1"})
    hand.work()

    def follow() -> None:
        hand.store.states.write({"cursor": None})

    assert hand.store.ask(DELETE, ReadRequest("node", follow)) is LATER
    assert hand.store.close()
    assert open_held(files).store.states.get("cursor") is None


def test_a_fault_of_our_own_in_a_change_is_raised_and_the_next_change_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hand = opened()
    first, second = hand.ask_later(UPDATE), hand.ask_later(DELETE)
    with monkeypatch.context() as patch:
        patch.setattr(logs.Logs, "add", None)
        hand.held.keeper.run(1)
        hand.loop.run_ready()
    hand.work()
    with pytest.raises(TypeError):
        first.again()
    assert second.again() is None
    assert not hand.store.logs


def test_many_changes_that_fail_at_once_take_no_stack() -> None:
    hand = opened()
    deletion = hand.ask_later(DELETE)
    late = [hand.ask_later(DELETE) for _ in range(3000)]
    hand.work()
    assert outcome(deletion) is None
    assert {outcome(each) for each in late} == {KeyError}
