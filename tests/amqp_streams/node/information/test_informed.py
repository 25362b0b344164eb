"""Answers of `$info` are reused for a moment, and never hide events that were accepted in between."""

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.node.information.informed import ANSWERS_MAX, KEPT_MS, Informed
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams import info
from amqp_streams.streams.redirects import NOWHERE, Elsewhere
from amqp_streams.testing import MemoryStore
from amqp_streams.wire.types import Value


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


@pytest.fixture
def informed(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def log_of(store: MemoryStore, name: str = "temps") -> StoredLog:
    return store.create(name, LogSettings(partitions=2), incarnation="i")


def test_many_links_are_given_the_same_bytes(informed: Counted) -> None:
    log = log_of(MemoryStore())
    assert len({informed.message(log, NOWHERE, now_ms) for now_ms in range(KEPT_MS)}) == 1
    assert informed.encoded == 1
    informed.message(log, NOWHERE, KEPT_MS)
    assert informed.encoded == 2


def test_accepted_changed_and_moved_positions_are_in_the_next_answer(informed: Counted) -> None:
    store = MemoryStore()
    log = log_of(store)
    informed.message(log, NOWHERE, 0)
    log.partitions[1].append([b"a"], b"\0", 5)
    store.commit()
    informed.message(log, NOWHERE, 0)
    informed.message(store.update("temps", LogSettings(partitions=2, retention_ms=5000)), NOWHERE, 0)
    informed.message(store.logs["temps"], {0: Elsewhere("there", 1)}, 0)
    informed.forget()
    informed.message(store.logs["temps"], {0: Elsewhere("there", 1)}, 0)
    assert informed.encoded == 5


def test_the_answers_kept_are_few(informed: Counted) -> None:
    store = MemoryStore()
    logs = [log_of(store, f"log-{number}") for number in range(ANSWERS_MAX + 3)]
    for log in logs:
        informed.message(log, NOWHERE, 0)
    assert len(informed._kept) == ANSWERS_MAX
