"""Stores with logs whose closed segments are compressed."""

import random
from pathlib import Path

from amqp_streams.config import LogSettings
from amqp_streams.log_settings import Compression
from amqp_streams.storage.partitions.partition_log import PartitionLog
from amqp_streams.storage.ports import Partition
from amqp_streams.testing import FaultyFiles
from tests.amqp_streams.storage.conftest import NOW, ROOT, Hand
from tests.amqp_streams.storage.held import HeldHand

CODECS = (Compression.ZSTD, Compression.LZ4)
FOLDER = ROOT / "logs" / "log" / "0"
ZSTD = LogSettings(segment_bytes=64 << 10, compression=Compression.ZSTD)


def messages(rng: random.Random, count: int, *, alike: bool = True) -> list[bytes]:
    """Messages that compress well, or not at all."""
    if not alike:
        return [rng.randbytes(rng.randrange(200, 600)) for _ in range(count)]
    return [
        b'{"reading": %d, "place": "%s"}' % (rng.randrange(1000), b"x" * rng.randrange(400))
        for _ in range(count)
    ]


def filled(
    hand: Hand, settings: LogSettings = ZSTD, *, steps: int = 300, seed: int = 1, alike: bool = True
) -> tuple[PartitionLog, list[bytes]]:
    """A partition with several closed segments, and its messages."""
    rng, sent = random.Random(seed), list[bytes]()
    log = hand.store.logs.get("log") or hand.store.create("log", settings, incarnation="i")
    partition = log.partitions[0]
    for step in range(steps):
        some = messages(rng, 4, alike=alike)
        partition.append(some, bytes(len(some)), NOW + step)
        if isinstance(hand, HeldHand):
            hand.commit_all()
        else:
            hand.commit()
        sent += some
    assert isinstance(partition, PartitionLog)
    assert len(partition.segments.row) > steps // 100
    return partition, sent


def compress(hand: Hand, calls: int = 40) -> None:
    """Let the store compress what there is."""
    for _ in range(calls):
        hand.store.compress()
        hand.loop.run_ready()


def files_of(files: FaultyFiles, suffix: str, folder: Path = FOLDER) -> list[Path]:
    """The files of the partition with this suffix, in order."""
    return sorted(path for path in files.paths() if path.parent == folder and path.name.endswith(suffix))


def compressed_count(partition: Partition) -> int:
    """How many segments of a partition are compressed."""
    assert isinstance(partition, PartitionLog)
    return sum(segment.stored is not None for segment in partition.segments.row)
