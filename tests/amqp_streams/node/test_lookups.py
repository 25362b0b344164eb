"""Lookups of a time that wait for the store: each answer advances them, and a cancelled one calls nothing."""

from dataclasses import replace
from functools import partial

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.node.lookups import Answering, Begun, Lookups, asked, carried_out, sought
from amqp_streams.node.writes import Wait
from amqp_streams.storage.ports import Partition
from amqp_streams.storage.questions import Create, Find
from amqp_streams.streams.steps import finish
from amqp_streams.testing import FaultyFiles, Lateness, ManualLoop, MemoryStore
from tests.amqp_streams.storage.conftest import NOW, SMALL, Hand, open_inline

PARTITIONS = 6
WAITS_MAX = 2 * PARTITIONS
"""An index and a stretch of records for each partition."""


@pytest.fixture
def cold() -> Hand:
    """A store whose records are not in the page cache, and that keeps only one thing in memory."""
    files = FaultyFiles()
    hand = open_inline(files)
    settings = LogSettings(segment_bytes=64 << 10, partitions=PARTITIONS)
    for partition in hand.store.create("log", settings, incarnation="i").partitions:
        for number in range(100):
            hand.write(partition, b"x" * 1000, now_ms=NOW + number)
    hand.store.close()
    hand = open_inline(files, tuning=replace(SMALL, cache_bytes=1))
    files.cold = lambda: True
    return hand


def partitions(hand: Hand) -> tuple[Partition, ...]:
    return hand.store.logs["log"].partitions


def test_a_lookup_in_many_partitions_advances_with_each_answer(cold: Hand) -> None:
    lookups, now = Lookups(), list[int]()
    answers: list[None] = []
    lookups.on_answer = lambda: answers.append(None)
    lookup = lookups.begin(NOW + 5, 1, now.append)
    assert lookup is not None
    waits = 0
    while lookup.waits(partitions(cold)):
        waits += 1
        assert waits <= WAITS_MAX
        cold.loop.run_until(lambda waits=waits: len(answers) == waits)  # type: ignore[misc]  # a default of a lambda
        lookups.proceed(waits)
    assert waits >= PARTITIONS
    assert now == list(range(1, waits + 1)), "each answer continues the attach once"
    cold.store.close()


def test_a_cancelled_lookup_calls_nothing(cold: Hand) -> None:
    lookups = Lookups()
    answers: list[int] = []
    lookups.on_answer = lambda: answers.append(0)
    before, after = (lookups.begin(NOW + 5, 1, answers.append) for _ in range(2))
    assert before is not None
    assert after is not None
    assert before.waits(partitions(cold))
    lookups.cancel(before)
    cold.loop.run_ready()
    assert not answers
    assert after.waits(partitions(cold)[1:])
    cold.loop.run_until(lambda: bool(answers))
    lookups.cancel(after)
    lookups.proceed(1)
    assert answers == [0]
    lookups.cancel(None)
    cold.store.close()


def test_nothing_is_looked_up_without_a_time_or_for_a_shell_that_cannot_wait() -> None:
    lookups = Lookups()
    assert lookups.begin(NOW, 1, lambda _now_ms: None) is None
    lookups.on_answer = lambda: None
    assert lookups.begin(None, 1, lambda _now_ms: None) is None


def test_a_request_gets_its_positions_in_steps(cold: Hand) -> None:
    steps, answers, waits = sought(partitions(cold), NOW + 5, 1), list[int](), 0
    found: dict[int, int] | None = None
    while found is None:
        try:
            wait = next(steps)
        except StopIteration as end:
            found = end.value
            break
        waits += 1
        assert waits <= WAITS_MAX
        wait.then(partial(answers.append, waits))
        cold.loop.run_until(lambda waits=waits: answers[-1:] == [waits])  # type: ignore[misc]  # a default of a lambda
    assert waits >= PARTITIONS
    assert found == dict.fromkeys(range(PARTITIONS), 6)
    assert finish(sought(partitions(cold), NOW, None)) == {}
    assert finish(sought(partitions(cold), None, 1)) == {}
    cold.store.close()


def test_a_request_that_ends_gives_up_its_lookup(cold: Hand) -> None:
    steps, answers = sought(partitions(cold), NOW + 5, 1), list[int]()
    next(steps).then(lambda: answers.append(1))
    steps.close()
    cold.loop.run_ready()
    assert not answers
    cold.store.close()


def test_a_question_waits_for_the_store_or_is_answered_at_once() -> None:
    loop, answers = ManualLoop(), list[int]()
    store = MemoryStore(late=Lateness(loop.call))
    steps = asked(store, Create("log", LogSettings(), "i"), 1)
    next(steps).then(lambda: answers.append(1))
    assert not store.logs
    loop.run_ready()
    assert answers == [1]
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value is store.logs["log"]
    assert finish(asked(store, Find("log"), None)) is store.logs["log"]


class Change:
    """A change that waits twice."""

    def __init__(self, error: Exception | None = None) -> None:
        self.waits = [Wait(), Wait()]
        self.done: list[str] = []
        self._error = error

    def steps(self) -> Answering[str]:
        yield from self.waits
        self.done.append("changed")
        if self._error is not None:
            raise self._error
        return "answer"

    def then(self) -> None:
        self.done.append("then")

    def end(self) -> None:
        for wait in self.waits:
            wait.ended(None, 0)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_change_that_has_begun_continues_without_its_caller(*, leaves: bool) -> None:
    change = Change()
    caller = carried_out(change.steps(), change.then)
    wait = next(caller)
    assert isinstance(wait, Begun)
    wait.then(lambda: change.done.append("answered"))
    if leaves:
        caller.close()
    change.waits[0].ended(None, 0)
    assert change.done == []
    change.waits[1].ended(None, 0)
    assert change.done == ["changed", "answered", "then"]
    if not leaves:
        assert _result(caller) == "answer"


def test_the_caller_of_a_change_gets_its_error() -> None:
    change = Change(KeyError("log"))
    caller = carried_out(change.steps(), change.then)
    next(caller)
    change.end()
    assert change.done == ["changed", "then"]
    with pytest.raises(KeyError, match="log"):
        next(caller)


def test_a_change_that_waits_for_nothing_is_answered_at_once() -> None:
    change = Change()
    change.end()
    assert _result(carried_out(change.steps(), change.then)) == "answer"
    assert change.done == ["changed", "then"]


def _result(caller: Answering[str]) -> str:
    with pytest.raises(StopIteration) as end:
        next(caller)
    return str(end.value.value)
