"""Who joins and encodes records: the thread that writes, never the event loop."""

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.storage.formats import record
from amqp_streams.storage.formats.chunks import Appends, part
from amqp_streams.storage.partitions.partition_log import PartitionLog
from amqp_streams.storage.ports import Chunk
from amqp_streams.testing import FaultyFiles
from tests.amqp_streams.storage.conftest import NOW, SMALL, read_all
from tests.amqp_streams.storage.held import HeldHand, open_held

FLUSH_BYTES = SMALL.flush_bytes


class Work:
    """The bytes that were encoded, and the runs that were joined, since the last look."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._bytes = self._runs = 0
        encode, joined = record.encode, Appends.joined

        def counted(chunk: Chunk, seed: int) -> tuple[bytes, bytes | memoryview]:
            self._bytes += sum(map(len, chunk.messages))
            return encode(chunk, seed)

        def counted_run(run: Appends) -> Chunk:
            self._runs += bool(run.pieces)
            return joined(run)

        patch.setattr(record, "encode", counted)
        patch.setattr(Appends, "joined", counted_run)

    def take(self) -> tuple[int, int]:
        taken, self._bytes, self._runs = (self._bytes, self._runs), 0, 0
        return taken


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


def _opened(partitions: int) -> tuple[HeldHand, list[PartitionLog]]:
    hand = open_held(FaultyFiles())
    log = hand.store.create("log", LogSettings(partitions=partitions), incarnation="i")
    hand.work()
    return hand, [partition for partition in log.partitions if isinstance(partition, PartitionLog)]


@pytest.mark.parametrize("size", [10, 2 * SMALL.direct_large_bytes], ids=["journal", "segments"])
def test_the_loop_encodes_and_joins_nothing_of_a_commit(size: int, work: Work) -> None:
    hand, (first, *_) = _opened(1)
    for _ in range(3):
        first.append([b"x" * size], b"\0", NOW)
    hand.store.commit()
    assert work.take() == (0, 0)
    hand.held.writer.run()
    assert work.take() == (3 * size, 1)
    hand.work()
    assert work.take() == (0, 0)
    assert read_all(first) == [b"x" * size] * 3


def test_the_loop_encodes_nothing_that_it_moves_to_segments(work: Work) -> None:
    """After one commit, many partitions are due."""
    hand, partitions = _opened(4)
    for partition in partitions:
        partition.append([b"x" * FLUSH_BYTES], b"\0", NOW)
    hand.store.commit()
    hand.held.writer.run()
    assert work.take() == (4 * FLUSH_BYTES, 4)
    hand.loop.run_ready()
    assert hand.held.writer.tasks, "a partition is written to its segment"
    assert work.take() == (0, 0)
    hand.held.writer.run()
    assert work.take()[0] >= FLUSH_BYTES
    hand.work()
    assert [read_all(partition) for partition in partitions] == [[b"x" * FLUSH_BYTES]] * 4


def test_a_run_of_many_batches_is_cut_without_copies_of_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record, "BATCH_BYTES_MAX", 100)
    copied = 0

    def counted(chunk: Chunk, first: int, last: int, marks: object = ()) -> Chunk:
        nonlocal copied
        copied += last - first
        return part(chunk, first, last)

    monkeypatch.setattr(record, "part", counted)
    run = Appends(0, [(NOW, [b"x" * 10] * 1000, bytes(1000), None)], (), 1000, is_formatted=False).joined()
    assert len(list(record.batches(run, 10_000))) == 100
    assert copied == 1000
