"""A producer is forgotten after its fence, and only if it has stored nothing since."""

from itertools import count

import pytest

from amqp_streams.kafka.numbered.forgetting import FORGET_MS, Forgetting
from amqp_streams.kafka.numbered.producing import (
    Close,
    Commit,
    Effect,
    Fence,
    NumberedProducer,
    Outcome,
    Read,
)
from amqp_streams.kafka.numbered.records import ProducerKey

KEY = ProducerKey("i", "old")


@pytest.fixture
def effects() -> list[Effect]:
    return []


@pytest.fixture
def forgetting(effects: list[Effect]) -> Forgetting:
    then = NumberedProducer(ProducerKey("i", "new"), "me", 0, effects, count(10), 0)
    return Forgetting(KEY, b"found", then, effects, count(), 0)


def test_a_record_is_removed_after_fence_and_reading(forgetting: Forgetting, effects: list[Effect]) -> None:
    forgetting.fenced(0, None)
    forgetting.read(0, None, b"found")
    assert [type(effect) for effect in effects] == [Fence, Read, Commit]
    assert not forgetting.over
    forgetting.ended(0, Outcome.COMMITTED, "")
    assert forgetting.over
    assert forgetting.failure is None
    assert isinstance(effects[-1], Close)


def test_a_record_that_changed_stays(forgetting: Forgetting, effects: list[Effect]) -> None:
    forgetting.fenced(0, None)
    forgetting.read(0, None, b"changed")
    assert [type(effect) for effect in effects] == [Fence, Read, Close]
    assert forgetting.failure is None


@pytest.mark.parametrize("step", range(4))
def test_a_failure_says_why(forgetting: Forgetting, step: int) -> None:
    forgetting.fenced(7, "not this attempt")
    if step == 0:
        forgetting.fenced(0, "reasons")
    else:
        forgetting.fenced(0, None)
    if step == 1:
        forgetting.read(0, "reasons", None)
    elif step > 1:
        forgetting.read(0, None, b"found")
    if step == 2:
        forgetting.ended(0, Outcome.UNKNOWN, "reasons")
    forgetting.tick(FORGET_MS - 1)
    assert forgetting.over is (step < 3)
    forgetting.tick(FORGET_MS)
    assert forgetting.failure == ("reasons" if step < 3 else "Kafka does not answer")
