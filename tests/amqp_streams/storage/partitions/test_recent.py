"""Runs in memory are counted exactly. Runs that retention removed do not keep others in memory."""

from amqp_streams.config import LogSettings
from amqp_streams.storage import DirectoryStore
from amqp_streams.storage.partitions.partition_log import PartitionLog
from amqp_streams.storage.partitions.recent import Recent
from amqp_streams.testing import FaultyFiles
from tests.amqp_streams.storage.conftest import NOW, SMALL, Hand, open_inline

SHORT = LogSettings(retention_ms=1000, segment_ms=1000)


def _partition(hand: Hand, name: str, settings: LogSettings | None = None) -> PartitionLog:
    partition = hand.store.create(name, settings or LogSettings(), incarnation=name).partitions[0]
    assert isinstance(partition, PartitionLog)
    return partition


def _recent(hand: Hand) -> Recent:
    assert isinstance(hand.store, DirectoryStore)
    return hand.store._flusher.recent


def _in_memory(*partitions: PartitionLog) -> int:
    runs = [chunk for partition in partitions for chunk in partition.tail]
    return sum(sum(map(len, run.messages)) + SMALL.recent_overhead_bytes for run in runs)


def test_runs_leave_in_the_order_in_which_they_came() -> None:
    hand = open_inline(FaultyFiles())
    one, other = _partition(hand, "one"), _partition(hand, "other")
    recent = Recent()
    assert recent.oldest() is None
    recent.add(one, 0, 10)
    recent.add(other, 0, 20)
    recent.add(one, 5, 30)
    assert (recent.oldest(), len(recent), recent.bytes) == (one, 3, 60)
    recent.drop(one, [0, 99])
    assert (recent.oldest(), len(recent), recent.bytes) == (other, 2, 50)
    recent.drop_oldest()
    assert (recent.oldest(), len(recent), recent.bytes) == (one, 1, 30)


def test_an_event_that_retention_took_from_an_idle_log_keeps_no_other_in_memory() -> None:
    hand = open_inline(FaultyFiles())
    idle, busy = _partition(hand, "idle", SHORT), _partition(hand, "busy")
    hand.write(idle, b"e")
    for later in (2000, 4000, 6000):  # written to a segment, the segment closed, the segment removed
        hand.store.apply_retention(NOW + later)
        hand.loop.run_ready()
    assert idle.start == idle.end == 1
    assert (len(_recent(hand)), _recent(hand).bytes) == (0, 0)
    for _ in range(200):
        hand.write(busy, bytes(1000))
    assert _in_memory(idle, busy) <= SMALL.recent_bytes + 1000 + SMALL.recent_overhead_bytes


def test_the_bytes_in_memory_are_counted_exactly_while_retention_and_eviction_take_turns() -> None:
    hand = open_inline(FaultyFiles())
    logs = [_partition(hand, f"log-{number}", SHORT) for number in range(3)]
    for turn in range(60):
        hand.write(logs[turn % 3], bytes(turn * 17), now_ms=NOW + turn * 100)
        hand.store.apply_retention(NOW + turn * 100)
        hand.loop.run_ready()
        assert _recent(hand).bytes == _in_memory(*logs)
    assert any(partition.start for partition in logs), "retention took some"


def test_a_deleted_log_leaves_nothing_in_memory() -> None:
    hand = open_inline(FaultyFiles())
    kept, gone = _partition(hand, "kept"), _partition(hand, "gone")
    for partition in (gone, kept):
        hand.write(partition, bytes(100))
    hand.store.delete("gone")
    assert _recent(hand).oldest() is kept
    assert _recent(hand).bytes == _in_memory(kept)
    assert not gone.tail
