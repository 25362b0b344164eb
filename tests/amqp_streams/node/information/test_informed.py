"""Answers of `$info` are reused for a moment, and never hide events that were accepted in between."""

from typing import Any, cast

import pytest

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import StorageError
from amqp_streams.node.information.informed import ANSWERS_MAX, KEPT_MS, Informed
from amqp_streams.storage.ports import PartitionFacts, StoredLog
from amqp_streams.streams import info
from amqp_streams.streams.redirects import NOWHERE, Elsewhere, Redirected
from amqp_streams.streams.steps import PARTITIONS_A_STEP, finish
from amqp_streams.testing import MemoryStore
from amqp_streams.wire.codec import decode
from amqp_streams.wire.types import Described, Value


class Counted(Informed):
    """Counts the encoded answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__("always")
        self.encoded = 0
        encode = info.value_message

        def counted(value: Value) -> bytes:
            self.encoded += 1
            return encode(value)

        monkeypatch.setattr(info, "value_message", counted)

    def at_once(self, log: StoredLog, elsewhere: Redirected, now_ms: int) -> bytes:
        """All steps of an answer."""
        return finish(self.message(log, elsewhere, now_ms))


@pytest.fixture
def informed(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def log_of(store: MemoryStore, name: str = "temps", partitions: int = 2) -> StoredLog:
    return store.create(name, LogSettings(partitions=partitions), incarnation="i")


def append(store: MemoryStore, log: StoredLog, partition: int) -> None:
    log.partitions[partition].append([b"a"], b"\0", 5)
    store.commit()


def counts(message: bytes) -> list[object]:
    """The events of each partition, by the answer."""
    answer, _ = decode(message)
    assert isinstance(answer, Described)
    return [each[names.INFO_EVENTS] for each in cast(Any, answer.value)[names.INFO_PARTITIONS]]


def test_many_links_are_given_the_same_bytes(informed: Counted) -> None:
    log = log_of(MemoryStore())
    assert len({informed.at_once(log, NOWHERE, now_ms) for now_ms in range(KEPT_MS)}) == 1
    assert informed.encoded == 1
    informed.at_once(log, NOWHERE, KEPT_MS)
    assert informed.encoded == 2


def test_accepted_changed_and_moved_positions_are_in_the_next_answer(informed: Counted) -> None:
    store = MemoryStore()
    log = log_of(store)
    informed.at_once(log, NOWHERE, 0)
    log.partitions[1].append([b"a"], b"\0", 5)
    store.commit()
    informed.at_once(log, NOWHERE, 0)
    informed.at_once(store.update("temps", LogSettings(partitions=2, retention_ms=5000)), NOWHERE, 0)
    informed.at_once(store.logs["temps"], {0: Elsewhere("there", 1)}, 0)
    informed.forget()
    informed.at_once(store.logs["temps"], {0: Elsewhere("there", 1)}, 0)
    assert informed.encoded == 5


def test_the_answers_kept_are_few(informed: Counted) -> None:
    store = MemoryStore()
    logs = [log_of(store, f"log-{number}") for number in range(ANSWERS_MAX + 3)]
    for log in logs:
        informed.at_once(log, NOWHERE, 0)
    assert len(informed._last) == ANSWERS_MAX


def test_links_that_ask_about_a_wide_log_share_the_steps(informed: Counted) -> None:
    log = log_of(MemoryStore(), partitions=10 * PARTITIONS_A_STEP)
    asked = [informed.message(log, NOWHERE, 0) for _ in range(100)]
    # The links take turns.
    steps = 0
    while asked:
        still = []
        for each in asked:
            steps += 1
            if next(each, b"answered") is None:
                still.append(each)
        asked = still
    assert informed.encoded == 1
    assert steps <= 10 + 100


def test_a_question_during_an_answer_gets_what_was_accepted_before_it(informed: Counted) -> None:
    store = MemoryStore()
    log = log_of(store, partitions=4 * PARTITIONS_A_STEP)
    early = informed.message(log, NOWHERE, 0)
    next(early)
    append(store, log, 0)  # the first step has passed it
    late = informed.message(log, NOWHERE, 0)
    next(late)
    assert counts(informed.at_once(log, NOWHERE, 0))[0] == 1
    assert counts(finish(late))[0] == 1
    assert counts(finish(early))[0] == 0
    assert informed.encoded == 2


def test_a_link_that_ends_leaves_its_answer_to_the_next_one(informed: Counted) -> None:
    store = MemoryStore()
    log = log_of(store, partitions=4 * PARTITIONS_A_STEP)
    gone = informed.message(log, NOWHERE, 0)
    next(gone)
    del gone
    append(store, log, 0)
    assert counts(informed.at_once(log, NOWHERE, 0))[0] == 1


def test_an_answer_that_fails_begins_again(informed: Counted) -> None:
    store = MemoryStore()
    log = log_of(store, partitions=2 * PARTITIONS_A_STEP)
    partition = log.partitions[-1]
    with pytest.MonkeyPatch.context() as patch:

        def fails() -> PartitionFacts:
            raise StorageError("the disk is gone")

        patch.setattr(type(partition), "facts", lambda _self: fails())
        with pytest.raises(StorageError):
            informed.at_once(log, NOWHERE, 0)
    assert counts(informed.at_once(log, NOWHERE, 0)) == [0] * 2 * PARTITIONS_A_STEP
