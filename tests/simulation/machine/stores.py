"""The parts of a node's store in a simulation, and the port for another store.

`Backend` is the port: a later store (replicated, or a service) is another class with these methods.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, Protocol

from amqp_streams.config import Sync
from amqp_streams.storage import DirectoryStore, Finding, Tuning
from amqp_streams.storage.disk.files import Files
from amqp_streams.storage.disk.work import Executor, LoopCall, Results, Task, run
from amqp_streams.storage.ports import CommitDone, Later, Partition, ReadRequest, Store, StoredLog
from amqp_streams.storage.questions import Find, Question, Refresh
from amqp_streams.testing import FaultyFiles, Lateness
from tests.simulation.machine.schedule import MS, Schedule

ROOT: Final = Path("/data")
TUNING: Final = Tuning(
    journal_bytes=32 << 10,
    direct_bytes_min=4 << 10,
    direct_large_bytes=8 << 10,
    flush_bytes=2 << 10,
    recent_bytes=8 << 10,
    recent_overhead_bytes=64,
    sync_bytes=4 << 10,
    index_bytes=8 << 10,
    cache_bytes=16 << 10,
    open_files=4,
    reserve_bytes=4 << 10,
    states_bytes=2 << 10,
    blocks_bytes=128 << 10,
    compress_block_bytes=2 << 10,
    compress_piece_bytes=4 << 10,
    compress_call_bytes=64 << 10,
    compress_bytes_min=100,
)
"""Limits that are so small that a few records reach them. In production they are megabytes."""


class Died(BaseException):
    """The process ends here, within an operation on a file."""


class Watcher(Protocol):
    """Observes records that become visible, before the node does."""

    def visible(self, log: StoredLog, partition: Partition) -> None:
        """The end of this partition has moved."""


class Backend(Protocol):
    """The disk of one node: the state that outlives its process."""

    def open(self, loop_call: LoopCall, now_ms: Callable[[], int], watcher: Watcher) -> Store:
        """Open the store in a new process."""

    def quiet(self) -> AbstractContextManager[None]:
        """Within the block, reads of the checks do not fail."""

    def kill(self) -> None:
        """End the process. The machine continues."""

    def lose_power(self) -> None:
        """Cut the power of the machine."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the findings of the last opening."""


LATE: Final = 0.5
"""The share of processes whose store answers questions later, as one on a network does."""
COLD: Final = 0.2
"""The share of reads whose bytes are not in the cache of the simulated system."""


@dataclass
class Pace:
    """How long the disk takes. `calm`: as long as a good disk."""

    random: Random
    calm: bool = False
    stalled_until_us: int = 0
    longest_us: int = 20 * MS

    def delay_us(self, now_us: int) -> int:
        """Until the next task has ended."""
        wait_us = max(0, self.stalled_until_us - now_us)
        if self.calm:
            return wait_us + 200
        return wait_us + self.random.choice(
            (100, 300, 1 * MS, 5 * MS, self.random.randint(0, self.longest_us))
        )


class LaggingExecutor:
    """A thread of the store: each task ends later, and one after the other."""

    def __init__(self, disk: "Directory", files: Files, results: Results) -> None:
        self.files = files
        self.results = results
        self.tasks: deque[Task] = deque()
        self.at_once = False
        self._disk = disk

    def submit(self, task: Task) -> None:
        self.tasks.append(task)
        if self.at_once:
            self.finish()
        elif len(self.tasks) == 1:
            self._later()

    def finish(self) -> None:
        """Do all that is left, now."""
        while self.tasks:
            self._perform(self.tasks.popleft())

    def stop(self) -> None:
        assert not self.tasks, "a store that closes has waited for its threads"

    def _later(self) -> None:
        process = self._disk.process
        self._disk.schedule.after(
            self._disk.pace.delay_us(self._disk.schedule.now_us), lambda: self._due(process)
        )

    def _due(self, process: int) -> None:
        if process != self._disk.process or not self.tasks:
            return
        task = self.tasks.popleft()
        self._disk.guard(lambda: self._perform(task))
        if self.tasks:
            self._later()

    def _perform(self, task: Task) -> None:
        run(task, self.files)
        self.results.put(task)


class Reader(LaggingExecutor):
    """A thread that reads: a store that closes does not wait for its reads."""

    def stop(self) -> None:
        self.tasks.clear()


class SimulatedStore(DirectoryStore):
    """The store of a directory whose threads are on the schedule."""

    disk: "Directory"
    watcher: Watcher
    ends: dict[Partition, int]

    def _executors(self, *, threads: bool, loop_call: LoopCall) -> tuple[Executor, Executor, Executor]:
        self.ends = {}
        self.late = Lateness(partial(self._later, loop_call)) if self.disk.late else None
        self.threads = [LaggingExecutor(self.disk, self._files, self._results) for _ in range(3)]
        return self.threads[0], self.threads[1], self.threads[2]

    def ask(self, question: Question, request: ReadRequest) -> StoredLog | Later | None:
        # A change answers late by itself.
        if self.late is None or not isinstance(question, Find | Refresh):
            return super().ask(question, request)
        return self.late.answer(request, question, partial(super().ask, question, request))

    def _later(self, loop_call: LoopCall, call: Callable[[], object]) -> None:
        process = self.disk.process
        self.disk.schedule.after(
            self.disk.choices.choice((100, 1 * MS, 20 * MS)),
            lambda: loop_call(call) if process == self.disk.process else None,
        )

    def _reader(self, threads: bool, number: int) -> Executor:
        return Reader(self.disk, self._files, self._results)

    def _wait_for_threads(self) -> None:
        for thread in self.threads[:2]:
            thread.finish()

    def _committed(self, done: CommitDone) -> None:
        self.tell()
        for error in done.failures.values():
            # The only failure of a commit that no disk causes: records that the node could not encode.
            assert "events cannot be stored" not in str(error), error
        super()._committed(done)

    def tell(self) -> None:
        """Report the records that have become visible to the watcher."""
        with self.disk.quiet():
            self._tell()

    def _tell(self) -> None:
        for stored in self.logs.values():
            for partition in stored.partitions:
                if partition.end != self.ends.get(partition):
                    self.ends[partition] = partition.end
                    self.watcher.visible(stored, partition)

    def close(self, *, within_s: float | None = None) -> bool:
        for thread in self.threads:
            thread.at_once = True
            thread.finish()
        return super().close()


@dataclass
class Directory:
    """A data directory on a simulated disk. `guard` makes the calls of the store's threads."""

    schedule: Schedule
    random: Random
    guard: Callable[[Callable[[], None]], None]
    files: FaultyFiles = field(default_factory=FaultyFiles)
    process: int = 0
    countdown: int = -1
    """Operations until the process dies within one; -1: it does not."""
    failing: Callable[[str, Path], int] = lambda operation, path: 0
    tears: bool = True
    """A power loss may keep parts of the data that was not synced."""

    def __post_init__(self) -> None:
        self.pace = Pace(self.random)
        self.store: SimulatedStore | None = None
        self.files.fault = self._fault
        # Choices of its own: those of the disk stay as they are.
        self.choices = Random(0)
        self.late = False
        self.files.cold = lambda: self.choices.random() < COLD

    def open(self, loop_call: LoopCall, now_ms: Callable[[], int], watcher: Watcher) -> Store:
        """See `Backend`."""
        self.process += 1
        self.late = self.choices.random() < LATE
        disk, seen = self, watcher

        class Opened(SimulatedStore):
            disk = self
            watcher = seen

        assert Opened.disk is disk
        opened = Opened.open(
            ROOT, Sync(), loop_call=loop_call, now_ms=now_ms, files=self.files, tuning=TUNING, threads=False
        )
        assert isinstance(opened, SimulatedStore)
        self.store = opened
        return opened

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """See `Backend`."""
        failing, self.failing = self.failing, lambda operation, path: 0
        countdown, self.countdown = self.countdown, -1
        try:
            yield
        finally:
            self.failing, self.countdown = failing, countdown

    def kill(self) -> None:
        """See `Backend`."""
        self._end()
        self.files.kill()

    def lose_power(self) -> None:
        """See `Backend`."""
        self._end()
        self.files.power_loss(self.random if self.tears and self.random.random() < 0.7 else None)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """See `Backend`."""
        return () if self.store is None else self.store.findings

    def _end(self) -> None:
        self.process += 1
        self.countdown = -1
        self.store = None

    def _fault(self, operation: str, path: Path) -> int:
        if self.countdown == 0:
            self.countdown = -1
            raise Died
        self.countdown -= self.countdown > 0
        return self.failing(operation, path)
