"""From one seed: appends, commits, reads, retention, compression, crashes at any operation, and recovery that
crashes again, compared with a model.

Invariants after each opening: no accepted record is lost or changed, the order is kept, and numbers of
visible records are never used again. A record that was not accepted is present as it was sent, or absent.
States are as they were after some write: the last one that ended, or a later one.
"""

import random
from array import array
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from zlib import crc32

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import StorageError
from amqp_streams.log_settings import Compression
from amqp_streams.storage import DirectoryStore, Severity
from amqp_streams.storage.disk.files import Files
from amqp_streams.storage.disk.work import Executor, LoopCall, Results, Task, run
from amqp_streams.storage.ports import CommitDone, Numbers, Partition
from amqp_streams.testing import FaultyFiles, ManualLoop
from tests.amqp_streams.storage.conftest import NOW, ROOT, SMALL

PARTITIONS = 5


class Crash(BaseException):
    """The process ends here."""


class LaggingExecutor:
    """Runs its tasks on request, so that the work of the writer overlaps with everything else."""

    def __init__(self, files: Files, results: Results) -> None:
        self.files = files
        self.results = results
        self.tasks: deque[Task] = deque()
        self.at_once = False

    def submit(self, task: Task) -> None:
        self.tasks.append(task)
        if self.at_once:
            self.run(1 << 30)

    def run(self, count: int) -> None:
        while self.tasks and count:
            task = self.tasks.popleft()
            run(task, self.files)
            self.results.put(task)
            count -= 1

    def stop(self) -> None:
        assert not self.tasks


class LaggingStore(DirectoryStore):
    """The store with these executors."""

    def _executors(self, *, threads: bool, loop_call: LoopCall) -> tuple[Executor, Executor, Executor]:
        self.writer = LaggingExecutor(self._files, self._results)
        self.keeper = LaggingExecutor(self._files, self._results)
        self.states_writer = LaggingExecutor(self._files, self._results)
        return self.writer, self.keeper, self.states_writer


@dataclass
class Model:
    """The expected contents of one partition.

    `sent`: by number, with the commit of the record. `numbered`: by record, the producer and its number.
    `forgetting`: by the first record of an append, the producers that were forgotten with it.
    """

    visible: list[tuple[bytes, int]] = field(default_factory=list)
    sent: dict[int, tuple[bytes, int, int]] = field(default_factory=dict)
    start: int = 0
    numbered: dict[int, tuple[str, int]] = field(default_factory=dict)
    forgetting: dict[int, str] = field(default_factory=dict)

    def producers(self, end: int) -> dict[str, int]:
        """Return the last number of each producer, given the records below `end`. Records that retention
        removed count, too.
        """
        reached: dict[str, int] = {}
        for number in range(end):
            reached.pop(self.forgetting.get(number, ""), None)
            if number in self.numbered:
                producer, sequence = self.numbered[number]
                reached.pop(producer, None)
                reached[producer] = sequence
        return reached


def format_of(message: bytes) -> int:
    """The message-format that a message gets, in worlds where messages have one."""
    return crc32(message) if len(message) % 3 == 1 else 0


class World:
    """The store, the model, and the fate of both."""

    def __init__(self, seed: int, compression: Compression = Compression.NONE) -> None:
        self.rng = random.Random(seed)
        self.extras = random.Random(seed)
        """For what only worlds with compression do."""
        self.replaced = 0
        self.files = FaultyFiles()
        self.now_ms = NOW
        self.models = [Model() for _ in range(PARTITIONS)]
        self.states: list[dict[str, bytes]] = [{}]
        """The states after the last write that ended, and after each later write."""
        self.settings = LogSettings(partitions=PARTITIONS, segment_bytes=64 << 10, segment_ms=50_000)
        if self.rng.random() < 0.5:
            self.settings = self.settings.model_copy(
                update={"retention_bytes": 1 << 20, "retention_ms": 400_000}
            )
        self.settings = self.settings.model_copy(update={"compression": compression})
        self.numbered = self.rng.choice([0.0, 0.1, 0.9])
        self.formatted = self.rng.random() < 0.5
        self.last = 0
        self.countdown = -1
        self.files.fault = self._fault
        self.crash_chance = self.rng.choice([0.03, 0.01])
        self.tuning = replace(
            SMALL,
            journal_bytes=self.rng.choice([16 << 10, 64 << 10]),
            compress_bytes_min=200,
            compress_block_bytes=4 << 10,
            compress_piece_bytes=8 << 10,
        )
        self.keeper_pace = self.rng.choice([1.0, 0.5, 0.02])
        self.loop = ManualLoop()
        self.store: LaggingStore

    def _fault(self, operation: str, path: Path) -> int:
        if self.countdown == 0:
            self.countdown = -1
            raise Crash
        self.countdown -= self.countdown > 0
        return 0

    def run(self, steps: int) -> None:
        self._open()
        for _ in range(steps):
            if self.rng.random() < self.crash_chance:
                self.countdown = self.rng.randrange(1, 40)
            try:
                self._step()
            except Crash:
                self._recover()
        self.countdown = -1
        self._recover()

    def _step(self) -> None:
        if self.settings.compression is not Compression.NONE and self.extras.random() < 0.5:
            self.store.compress()
            self.store.keeper.run(self.extras.randint(0, 4))
            self.loop.run_ready()
        chance = self.rng.random()
        if chance < 0.3:
            for _ in range(self.rng.choice([1, 1, 3, 20])):
                self._append(self.rng.randrange(PARTITIONS))
        elif chance < 0.55:
            self.store.commit()
        elif chance < 0.75:
            self.store.writer.run(self.rng.randint(1, 5))
            self.loop.run_ready()
        elif chance < 0.85:
            if self.rng.random() < self.keeper_pace:
                self.store.keeper.run(self.rng.randint(1, 5))
                self.loop.run_ready()
        elif chance < 0.90:
            self._write_states()
        elif chance < 0.95:
            self._read()
        elif chance < 0.99:
            self.now_ms += self.rng.choice([1, 500, 100_000])
            for partition, before in self.store.apply_retention(self.now_ms):
                assert before == self.models[partition.index].start
            self._note_starts()
        else:
            self._close()
            self._open()

    def _close(self) -> None:
        for executor in (self.store.writer, self.store.keeper, self.store.states_writer):
            executor.at_once = True
            executor.run(1 << 30)
        self.store.close()
        assert not any(model.sent for model in self.models)
        assert len(self.states) == 1

    def _append(self, index: int) -> None:
        partition = self.store.logs["log"].partitions[index]
        size = self.rng.choice([0, 10, 10, 100, 1000, 9000, 40_000] if self.rng.random() < 0.2 else [10, 100])
        messages = [self.rng.randbytes(self.rng.randint(0, size)) for _ in range(self.rng.randint(1, 8))]
        if self.settings.compression is not Compression.NONE:  # random bytes do not compress
            messages = [(each[:3] * (len(each) // 3 + 1))[: len(each)] for each in messages]
        model = self.models[index]
        base = len(model.visible) + len(model.sent)
        numbers = self._numbers(model, base, len(messages)) if self.rng.random() < self.numbered else None
        formats = array("I", map(format_of, messages)) if self.formatted else None
        sizes = bytes(min(255, len(message)) for message in messages)
        assert base == partition.append(
            messages, sizes, self.now_ms, numbers, formats if formats and any(formats) else None
        )
        sequence = partition.queue.sequence
        model.sent.update(
            {base + place: (message, self.now_ms, sequence) for place, message in enumerate(messages)}
        )

    def _numbers(self, model: Model, base: int, count: int) -> Numbers:
        producer = self.rng.choice(["a", "b", "c", "é" * 100])
        self.last += 1
        sequences = array("Q", range(self.last, self.last + count))
        self.last += count
        for place in range(base, base + count):
            model.forgetting.pop(place, None)
        model.numbered.update(
            {base + place: (producer, sequence) for place, sequence in enumerate(sequences)}
        )
        gone = self.rng.choice(["a", "b", "c"])
        if gone == producer or self.rng.random() < 0.8:
            return Numbers(producer, sequences)
        model.forgetting[base] = gone
        return Numbers(producer, sequences, [gone])

    def _committed(self, done: CommitDone) -> None:
        assert not done.failures
        for model in self.models:
            for number, (message, now_ms, sequence) in list(model.sent.items()):
                if sequence <= done.sequence:
                    assert sequence == done.sequence
                    assert number == len(model.visible)
                    model.visible.append((message, now_ms))
                    del model.sent[number]

    def _write_states(self) -> None:
        for _ in range(self.rng.choice([1, 1, 3])):
            keys = [f"key-{self.rng.randrange(30)}" for _ in range(self.rng.choice([1, 2, 5]))]
            changes = {
                key: self.rng.randbytes(self.rng.choice([0, 9, 600])) if self.rng.random() < 0.8 else None
                for key in keys
            }
            state = self.states[-1] | {key: value for key, value in changes.items() if value is not None}
            self.states.append(
                {key: value for key, value in state.items() if changes.get(key, value) is not None}
            )
            self.store.states.write(changes)
            assert dict(self.store.states.items("")) == self.states[-1]
        if self.rng.random() < 0.7:
            self.store.states_writer.run(self.rng.randint(1, 3))
            self.loop.run_ready()

    def _written(self, number: int, failure: StorageError | None) -> None:
        assert failure is None
        del self.states[0]

    def _note_starts(self) -> None:
        for model, partition in zip(self.models, self.store.logs["log"].partitions, strict=True):
            assert partition.start >= model.start
            model.start = partition.start

    def _read(self) -> None:
        index = self.rng.randrange(PARTITIONS)
        partition, model = self.store.logs["log"].partitions[index], self.models[index]
        assert (partition.start, partition.end) == (model.start, len(model.visible))
        self._compare_producers(partition, model)
        if partition.end > partition.start:
            at = self.rng.randrange(partition.start, partition.end)
            self._compare(partition, model, at, self.rng.choice([1, 1000, 100_000]))
            after_ms = model.visible[at][1]
            naive = next(
                (n for n in range(model.start, len(model.visible)) if model.visible[n][1] > after_ms),
                len(model.visible),
            )
            assert partition.seek_timestamp(after_ms) == naive

    def _compare(self, partition: Partition, model: Model, at: int, bytes_max: int) -> int:
        chunk = partition.read(at, bytes_max)
        assert chunk is not None
        assert chunk.base == at
        expected = model.visible[at : at + len(chunk)]
        assert list(zip(chunk.messages, chunk.timestamps, strict=True)) == expected
        assert list(chunk.header_sizes) == [min(255, len(message)) for message, _ in expected]
        formats = [format_of(message) if self.formatted else 0 for message, _ in expected]
        assert list(chunk.formats or ()) == (formats if any(formats) else [])
        return at + len(chunk)

    def _compare_producers(self, partition: Partition, model: Model) -> None:
        reached = [(producer, reached.sequence) for producer, reached in partition.producers.items()]
        assert sorted(reached) == sorted(model.producers(partition.end).items())

    def _recover(self) -> None:
        """The process ends, perhaps with a power loss, and perhaps recovery is interrupted, too."""
        self.replaced += sum(path.suffix == ".logz" for path in self.files.paths())
        if "log" in self.store.logs:
            self._note_starts()
        while True:
            fate = self.rng.choice(["kill", "power", "parts"])
            if fate == "kill":
                self.files.kill()
            else:
                self.files.power_loss(self.rng if fate == "parts" else None)
            self.countdown = self.rng.randrange(1, 60) if self.rng.random() < 0.3 else -1
            try:
                self._open()
            except Crash:
                continue
            self.countdown = -1
            return

    def _open(self) -> None:
        self.loop = ManualLoop()
        store = LaggingStore.open(
            ROOT,
            loop_call=self.loop.call,
            now_ms=lambda: self.now_ms,
            files=self.files,
            tuning=self.tuning,
            threads=False,
        )
        assert isinstance(store, LaggingStore)
        self.store = store
        store.on_commit = self._committed
        store.states.on_written = self._written
        assert dict(store.states.items("")) in self.states
        self.states = [dict(store.states.items(""))]
        damage = [finding for finding in store.findings if finding.severity is Severity.DAMAGE]
        assert not damage, damage
        if "log" not in store.logs:
            assert not any(model.visible for model in self.models)
            store.create("log", self.settings, incarnation="i")
        if self.numbered:
            store.allow_numbers()
        if self.formatted:
            store.allow_formats()
        for model, partition in zip(self.models, store.logs["log"].partitions, strict=True):
            # Segments that were about to be removed may be back; none is gone that retention did not let go.
            assert partition.start <= model.start <= partition.end
            assert partition.end >= len(model.visible)
            model.start = partition.start
            for number in range(len(model.visible), partition.end):
                model.visible.append(model.sent[number][:2])
            model.sent.clear()
            for lost in (model.numbered, model.forgetting):
                for number in [number for number in lost if number >= partition.end]:
                    del lost[number]
            self._compare_producers(partition, model)
            at = partition.start
            while at < partition.end:
                at = self._compare(partition, model, at, 1 << 20)


@pytest.mark.parametrize("seed", range(40))
def test_no_accepted_record_is_lost_or_changed_whatever_crashes_when(seed: int) -> None:
    World(seed).run(200)


@pytest.mark.parametrize("compression", [Compression.ZSTD, Compression.LZ4])
@pytest.mark.parametrize("seed", range(12))
def test_no_accepted_record_is_lost_or_changed_while_segments_are_compressed(
    seed: int, compression: Compression
) -> None:
    world = World(seed, compression)
    world.run(600)
    assert world.replaced > 5, "this world has compressed segments"
