"""Answers to questions and reads with a request, at once or later, of every store."""

from functools import partial

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.storage.ports import LATER, Partition, ReadRequest
from amqp_streams.storage.questions import Create, Delete, Find, Refresh, Update
from tests.amqp_streams.storage.conftest import NOW, Hand, read_all


def test_a_log_is_created_changed_and_deleted_by_questions(hand: Hand) -> None:
    log = hand.ask(Create("log", LogSettings(partitions=2), "i"))
    assert log is hand.store.logs["log"]
    assert len(log.partitions) == 2
    changed = hand.ask(Update("log", LogSettings(partitions=2, retention_ms=5000)))
    assert changed is hand.store.logs["log"]
    assert changed.settings.retention_ms == 5000
    assert changed.partitions == log.partitions
    assert hand.ask(Delete("log")) is None
    assert "log" not in hand.store.logs


def test_a_question_that_cannot_be_carried_out_raises(hand: Hand, partition: Partition) -> None:
    with pytest.raises(ValueError, match="exists"):
        hand.ask(Create(partition.log, LogSettings(), "i"))
    with pytest.raises(ValueError, match="partitions"):
        hand.ask(Update(partition.log, LogSettings(partitions=2)))
    with pytest.raises(KeyError):
        hand.ask(Update("none", LogSettings()))
    with pytest.raises(KeyError):
        hand.ask(Delete("none"))


def test_a_log_is_found_by_its_name(hand: Hand, partition: Partition) -> None:
    assert hand.ask(Find(partition.log)) is hand.store.logs[partition.log]
    assert hand.ask(Find("none")) is None


def test_what_was_durable_before_a_refresh_can_be_read_after_it(hand: Hand, partition: Partition) -> None:
    hand.write(partition, b"a", b"b")
    assert hand.ask(Refresh(partition.log, (partition.index,))) is None
    assert read_all(partition) == [b"a", b"b"]
    assert partition.facts().end == partition.end


def test_a_cancelled_request_is_not_answered_and_its_change_happens(hand: Hand) -> None:
    ready: list[None] = []
    request = ReadRequest("one", lambda: ready.append(None))
    if hand.store.ask(Create("log", LogSettings(), "i"), request) is LATER:
        request.cancel()
        hand.loop.run_until(lambda: "log" in hand.store.logs)
    hand.loop.run_ready()
    assert not ready
    assert "log" in hand.store.logs


def test_reads_and_lookups_with_a_request_answer_like_those_without(hand: Hand, partition: Partition) -> None:
    for number in range(20):
        hand.write(partition, b"%d" % number, now_ms=NOW + number)
    for at in range(partition.start, partition.end + 2):
        found, expected = hand.answer(partial(partition.read, at, 100)), partition.read(at, 100)
        assert (found and found.messages) == (expected and expected.messages)
    for after_ms in range(NOW - 1, NOW + 21):
        found_at = hand.answer(partial(partition.seek_timestamp, after_ms))
        assert found_at == partition.seek_timestamp(after_ms)
