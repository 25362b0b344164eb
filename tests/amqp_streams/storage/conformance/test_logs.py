"""Logs of every store: created, changed, deleted."""

from contextlib import suppress
from functools import partial

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import SettingRefusedError, StorageError
from amqp_streams.log_settings import Compression
from amqp_streams.storage.ports import LATER, Later, Partition, ReadRequest, StoredLog
from amqp_streams.storage.questions import Create
from tests.amqp_streams.storage.conftest import NOW, Hand, read_all


def test_a_log_is_made_once_and_found_by_its_name(hand: Hand) -> None:
    log = hand.store.create("a.b-c_1", LogSettings(partitions=3), incarnation="xyz")
    assert hand.store.logs["a.b-c_1"] == log or hand.store.logs["a.b-c_1"] is log
    assert [(partition.log, partition.index) for partition in log.partitions] == [
        ("a.b-c_1", 0),
        ("a.b-c_1", 1),
        ("a.b-c_1", 2),
    ]
    with pytest.raises(ValueError, match="exists"):
        hand.store.create("a.b-c_1", LogSettings(), incarnation="other")
    with pytest.raises(ValueError, match="not a valid log name"):
        hand.store.create("../a", LogSettings(), incarnation="other")


def test_of_two_creations_at_once_one_makes_the_log_and_the_other_finds_it(hand: Hand) -> None:
    ready: list[int] = []
    asked = {
        number: (
            Create("twin", LogSettings(partitions=number), str(number)),
            ReadRequest(number, partial(ready.append, number)),
        )
        for number in (1, 2)
    }
    outcomes = {number: _asked(hand, *each) for number, each in asked.items()}
    while waiting := [number for number, each in outcomes.items() if each is LATER]:
        hand.loop.run_until(partial(bool, ready))
        ready.clear()
        outcomes |= {number: _asked(hand, *asked[number]) for number in waiting}
    made = hand.store.logs["twin"]
    found = outcomes.pop(len(made.partitions))
    assert found is made or found == made
    (refused,) = outcomes.values()
    assert isinstance(refused, ValueError)
    assert "exists" in str(refused)
    hand.write(made.partitions[0], b"a")
    assert read_all(made.partitions[0]) == [b"a"]


def _asked(hand: Hand, question: Create, request: ReadRequest) -> StoredLog | Later | ValueError | None:
    try:
        return hand.store.ask(question, request)
    except ValueError as error:
        return error


def test_a_deleted_log_does_not_exist_and_its_pending_appends_fail(hand: Hand, partition: Partition) -> None:
    hand.write(partition, b"a")
    partition.append([b"b"], b"\0", NOW)
    hand.store.delete("log")
    assert "log" not in hand.store.logs
    done = hand.commit()
    assert done is not None
    assert list(done.failures) == [partition]
    with pytest.raises(StorageError, match="deleted"):
        partition.append([b"c"], b"\0", NOW)
    with pytest.raises(KeyError):
        hand.store.delete("log")


def test_a_namesake_of_a_deleted_log_begins_empty(hand: Hand, partition: Partition) -> None:
    hand.write(partition, *[b"old" * 100] * 30)
    hand.store.delete("log")
    again = hand.store.create("log", LogSettings(), incarnation="2").partitions[0]
    assert (again.start, again.end) == (0, 0)
    hand.write(again, b"new")
    assert read_all(again) == [b"new"]


def test_settings_change_but_not_the_number_of_partitions(hand: Hand, partition: Partition) -> None:
    hand.store.update("log", LogSettings(retention_ms=5000))
    assert hand.store.logs["log"].settings.retention_ms == 5000
    assert hand.store.logs["log"].partitions[0] is partition
    with pytest.raises(ValueError, match="partitions"):
        hand.store.update("log", LogSettings(partitions=2))
    with pytest.raises(KeyError):
        hand.store.update("none", LogSettings())


def test_the_identity_of_a_store_does_not_change_with_its_logs(hand: Hand) -> None:
    before = hand.store.identity
    hand.store.create("log", LogSettings(), incarnation="1")
    assert hand.store.identity == before
    hand.store.delete("log")
    assert hand.store.identity == before


def test_a_compression_is_kept_or_refused(hand: Hand) -> None:
    log = hand.store.create("log", LogSettings(), incarnation="i")
    wanted = log.settings.model_copy(update={"compression": Compression.LZ4})
    with suppress(SettingRefusedError):
        hand.store.update("log", wanted)
    if hand.store.logs["log"].settings.compression == Compression.NONE:
        with pytest.raises(SettingRefusedError, match="compression"):
            hand.store.create("other", wanted, incarnation="j")
        assert "other" not in hand.store.logs
    else:
        assert hand.store.logs["log"].settings.compression is Compression.LZ4
    hand.store.update("log", log.settings)
    assert hand.store.logs["log"].settings == log.settings
