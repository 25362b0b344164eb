"""A crash, or an error of the disk, at any operation of a change."""

from collections.abc import Callable
from errno import EIO, ENOSPC
from pathlib import Path

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import StorageError
from amqp_streams.storage import DirectoryStore
from amqp_streams.storage.questions import Create, Delete, Question, Update
from amqp_streams.testing import FaultyFiles
from tests.amqp_streams.storage.changes.steps import DELETE, Fault, crash, opened
from tests.amqp_streams.storage.conftest import NOW, ROOT
from tests.amqp_streams.storage.held import Asked, HeldHand


class Killed(BaseException):
    """The process ends here."""


QUESTIONS: list[tuple[Question, ...]] = [
    (Create("new", LogSettings(partitions=3), "n"),),
    (Update("log", LogSettings(segment_bytes=64 << 10, retention_ms=7000)),),
    (DELETE,),
    (DELETE, Create("log", LogSettings(partitions=2), "2")),
]


def state(store: DirectoryStore) -> dict[str, tuple[str, int, int | None, int]]:
    """The logs: incarnation, partitions, retention and end."""
    return {
        name: (
            log.incarnation,
            len(log.partitions),
            log.settings.retention_ms,
            log.partitions[0].end,
        )
        for name, log in store.logs.items()
    }


def change(hand: HeldHand, questions: tuple[Question, ...], after: Callable[[], object]) -> None:
    """Make changes while retention and checkpoints come in between; `after`: called after each of them."""
    for question in questions:
        asked = hand.ask_later(question)
        hand.store.apply_retention(NOW + 10_000)
        hand.work()
        assert asked.calls
        after()


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
@pytest.mark.parametrize(
    "questions", QUESTIONS, ids=lambda questions: "-".join(type(each).__name__ for each in questions)
)
def test_a_crash_at_any_operation_leaves_each_log_as_before_or_after_a_change(
    questions: tuple[Question, ...], *, power: bool
) -> None:
    """Nothing seems lost, and nothing that was answered is undone."""
    hand, _ = opened()
    states = [state(hand.held)]
    change(hand, questions, lambda: states.append(state(hand.held)))
    for survived in range(200):
        files, answered = FaultyFiles(), list[None]()
        hand, _ = opened(files)
        files.fault = _kill_after(survived)
        try:
            change(hand, questions, lambda: answered.append(None))  # noqa: B023  called at once
        except Killed:
            files.fault = lambda operation, path: 0
            assert state(crash(hand, files, power=power)) in states[len(answered) : len(answered) + 2]
        else:
            assert survived > 5, "operations were counted"
            return
    pytest.fail("the changes have an end")


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
def test_a_crash_during_many_deletions_at_once_undoes_none_that_was_answered(*, power: bool) -> None:
    """They share checkpoints: while one is written, the folders of other deleted logs are in the trash."""
    names = {"log", "other", *map(str, range(4))}
    for survived in range(300):
        files = FaultyFiles()
        hand, _ = opened(files)
        for name in names - set(hand.store.logs):
            hand.store.create(name, LogSettings(), incarnation=name)
        hand.work()
        before, asked = state(hand.held), dict[str, Asked]()
        files.fault = _kill_after(survived)
        try:
            for name in sorted(names - {"3"}):
                asked[name] = hand.ask_later(Delete(name))
                hand.held.writer.run()
                hand.loop.run_ready()
                if len(asked) % 2:  # a checkpoint is in flight
                    hand.held.keeper.run(1)
                    hand.loop.run_ready()
            hand.work()
        except Killed:
            files.fault = lambda operation, path: 0
            gone = {name for name, each in asked.items() if each.calls}
            found = state(crash(hand, files, power=power))
            assert not gone & found.keys()
            assert found.items() <= before.items()
            assert "3" in found
        else:
            assert survived > 20, "operations were counted"
            assert _trash(files) == []
            return
    pytest.fail("the changes have an end")


def _kill_after(count: int) -> Fault:
    left = [count]

    def fault(operation: str, path: Path) -> int:
        if not left[0]:
            raise Killed
        left[0] -= 1
        return 0

    return fault


# -- a disk that fails


@pytest.mark.parametrize("error", [EIO, ENOSPC], ids=["fails", "full"])
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
@pytest.mark.parametrize("again", [False, True], ids=["once", "again"])
@pytest.mark.parametrize("questions", QUESTIONS[:3], ids=lambda questions: type(questions[0]).__name__)
def test_a_change_that_fails_at_any_operation_has_not_happened(
    questions: tuple[Question], error: int, *, again: bool, power: bool
) -> None:
    """Also not after the next start. It leaves nothing behind, and can be repeated."""
    for survived in range(200):
        files = FaultyFiles()
        hand, _ = opened(files)
        before, paths = state(hand.held), _trash(files)
        asked = hand.ask_later(questions[0])
        happened = list[Path]()
        files.fault = _fail_after(survived, error, happened)
        hand.work()
        files.fault = lambda operation, path: 0
        if not happened:
            assert survived > 2, "operations were counted"
            return
        try:
            asked.again()
        except StorageError:
            assert (state(hand.held), _trash(files)) == (before, paths)
            if again:
                repeated = hand.ask_later(questions[0])
                hand.work()
                repeated.again()
                before = state(hand.held)
        else:
            before = state(hand.held)
        assert state(crash(hand, files, power=power)) == before
    pytest.fail("the changes have an end")


def _trash(files: FaultyFiles) -> list[str]:
    return files.listdir(ROOT / "trash")


def _fail_after(count: int, error: int, happened: list[Path]) -> Fault:
    left = [count]

    def fault(operation: str, path: Path) -> int:
        if left[0] == 0:
            happened.append(path)
        left[0] -= 1
        return error if left[0] == -1 else 0

    return fault
