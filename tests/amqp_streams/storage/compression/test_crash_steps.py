"""A crash at each single operation of the compression, and at each operation of the start after it.

Nothing is lost or damaged, nothing unfinished stays, and the work is done afterwards.
"""

import copy
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.storage import DirectoryStore, Severity
from amqp_streams.storage.partitions.partition_log import PartitionLog
from amqp_streams.testing import FaultyFiles
from tests.amqp_streams.storage.compressed import ZSTD, compress, compressed_count, files_of, filled
from tests.amqp_streams.storage.conftest import NOW, Hand, open_inline, read_all

FATES = ("kill", "power", "parts")


class Crash(BaseException):
    """The process ends here."""


def countdown(files: FaultyFiles, count: int) -> None:
    """Let the process end within an operation; those before it succeed."""
    left = [count]

    def fault(operation: str, path: Path) -> int:
        if left[0] == 0:
            left[0] = -1
            raise Crash
        left[0] -= left[0] > 0
        return 0

    files.fault = fault


def end(files: FaultyFiles, fate: str, seed: int) -> None:
    """End the process, perhaps with a power loss."""
    files.fault = lambda operation, path: 0
    if fate == "kill":
        files.kill()
    else:
        files.power_loss(random.Random(seed) if fate == "parts" else None)


def built(settings: LogSettings = ZSTD) -> tuple[FaultyFiles, list[bytes]]:
    """A directory whose segments are not compressed yet, after a kill."""
    files = FaultyFiles()
    hand = open_inline(files)
    _, sent = filled(hand, settings, steps=150)
    # A closed segment, and an active one without a record.
    assert isinstance(hand.store, DirectoryStore)
    partition = hand.store.logs["log"].partitions[0]
    assert isinstance(partition, PartitionLog)
    hand.store._flusher.flush(partition)
    hand.loop.run_ready()
    hand.store._flusher.seal(partition)
    hand.loop.run_ready()
    files.kill()
    return files, sent


BUILT = built()


def require(hand: Hand, sent: list[bytes]) -> PartitionLog:
    assert isinstance(hand.store, DirectoryStore)
    assert not [each for each in hand.store.findings if each.severity is not Severity.NOTE]
    partition = hand.store.logs["log"].partitions[0]
    assert isinstance(partition, PartitionLog)
    assert (partition.start, partition.end) == (0, len(sent))
    assert read_all(partition) == sent
    return partition


def steps(files: FaultyFiles) -> int:
    """How many operations it takes to compress everything."""
    hand = open_inline(files)
    before = files.operations
    compress(hand, 20)
    assert compressed_count(hand.store.logs["log"].partitions[0]) >= 2
    return files.operations - before


def crashed(files: FaultyFiles, count: int) -> None:
    """Compress until the process ends within an operation."""
    hand = open_inline(files)
    countdown(files, count)
    with pytest.raises(Crash):
        compress(hand, 20)


def cases(seed: int) -> Iterator[tuple[int, str, FaultyFiles]]:
    """Each operation with one fate, another one for each seed, and the directory after it."""
    for count in range(steps(copy.deepcopy(BUILT[0]))):
        files = copy.deepcopy(BUILT[0])
        crashed(files, count)
        fate = FATES[(count + seed) % len(FATES)]
        end(files, fate, 1000 * seed + count)
        yield count, fate, files


@pytest.mark.parametrize("seed", range(6))
def test_a_crash_at_any_operation_loses_nothing_and_the_work_is_done_afterwards(seed: int) -> None:
    sent = BUILT[1]
    for count, fate, files in cases(seed):
        hand = open_inline(files)
        partition = require(hand, sent)
        assert not files_of(files, ".new"), (count, fate)
        both = {path.stem for path in files_of(files, ".log")} & {
            path.stem for path in files_of(files, ".logz")
        }
        assert not both, (count, fate)
        hand.write(partition, b"afterwards")
        compress(hand, 20)
        assert compressed_count(partition) == len(partition.segments.row) - 1
        require(hand, [*sent, b"afterwards"])
        end(files, FATES[count % 3], count)
        require(open_inline(files), [*sent, b"afterwards"])


def test_a_crash_of_the_start_after_a_crash_loses_nothing() -> None:
    sent, rng = BUILT[1], random.Random(3)
    for count, _, files in cases(1):
        if count % 3:
            continue
        for _ in range(4):
            countdown(files, rng.randrange(60))
            try:
                open_inline(files)
            except Crash:
                end(files, rng.choice(FATES), rng.randrange(1 << 30))
                continue
            end(files, rng.choice(FATES), rng.randrange(1 << 30))
        require(open_inline(files), sent)


def test_records_that_follow_a_crash_are_not_lost_to_a_compressed_file_that_comes_back() -> None:
    """The last segment has both files after the crash. Then it is written again, and the power fails."""
    sent = BUILT[1]
    seen = 0
    for count in range(steps(copy.deepcopy(BUILT[0]))):
        files = copy.deepcopy(BUILT[0])
        crashed(files, count)
        end(files, "kill", 0)
        names = {path.name for path in files_of(files, "")}
        both = [name for name in names if name.endswith(".log") and name + "z" in names]
        seen += len(both)
        if not both:
            continue
        hand = open_inline(files)
        partition = require(hand, sent)
        hand.write(partition, b"later" * 3000, now_ms=NOW + 10_000)
        for seed in range(5):
            again = copy.deepcopy(files)
            end(again, "parts", seed)
            require(open_inline(again), [*sent, b"later" * 3000])
    assert seen


@pytest.mark.parametrize("shorter", [True, False])
def test_of_two_files_the_one_that_is_certainly_whole_is_read(shorter: bool) -> None:
    """A damaged file never wins over the file that has its records."""
    files, sent = copy.deepcopy(BUILT[0]), BUILT[1]
    hand = open_inline(files)
    original = {path: bytes(files.content(path)) for path in files_of(files, ".log")}
    compress(hand, 20)
    hand.store.close()
    files.kill()
    path = min(original)
    data = original[path]
    files.open(path, create=True)
    files.damage(path, lambda content: content.extend(data[:-100] if shorter else data))
    if not shorter:
        files.damage(path.with_suffix(".logz"), lambda content: content.__setitem__(100, content[100] ^ 1))
    files.fsync_dir(path.parent)
    files.kill()
    hand = open_inline(files)
    partition = require(hand, sent)
    assert (partition.segments.row[0].stored is None) is not shorter
    files.kill()
    require(open_inline(files), sent)
