"""Retention examines some partitions in each call, and all of them round-robin."""

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.storage import directory_store
from amqp_streams.testing import FaultyFiles
from tests.amqp_streams.storage.conftest import NOW, open_inline


def test_retention_comes_to_every_partition_a_few_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_store, "RETAINED_A_CALL", 3)
    hand = open_inline(FaultyFiles())
    log = hand.store.create(
        "log", LogSettings(partitions=8, retention_ms=1000, segment_ms=1000), incarnation="i"
    )
    for partition in log.partitions:
        partition.append([b"a" * 3000], b"\0", NOW)
    hand.commit()
    for partition in log.partitions:
        hand.write(partition, b"b" * 5000, now_ms=NOW + 2000)
    moved = []
    for _ in range(6):
        found = hand.store.apply_retention(NOW + 2500)
        assert len(found) <= 3
        moved += [partition for partition, _ in found]
        hand.loop.run_ready()
    assert sorted(partition.index for partition in moved) == list(range(8))
