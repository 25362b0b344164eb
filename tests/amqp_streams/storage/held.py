"""A store on files in memory whose threads work when the test says so."""

from collections import deque
from typing import Any

from amqp_streams.errors import StorageError
from amqp_streams.storage import DirectoryStore
from amqp_streams.storage.disk.files import Files
from amqp_streams.storage.disk.work import Executor, LoopCall, Results, Task, run
from amqp_streams.storage.ports import LATER, Later, ReadRequest, StoredLog
from amqp_streams.storage.questions import Question
from amqp_streams.testing import FaultyFiles, ManualLoop
from tests.amqp_streams.storage.conftest import Hand, open_in_memory


class HeldExecutor:
    """Runs its tasks on request."""

    def __init__(self, files: Files, results: Results) -> None:
        self.tasks: deque[Task] = deque()
        self.at_once = False
        self._files = files
        self._results = results

    def submit(self, task: Task) -> None:
        self.tasks.append(task)
        if self.at_once:
            self.run()

    def run(self, count: int = 1 << 30) -> int:
        """Run up to `count` tasks; returns how many it ran."""
        ran = 0
        while self.tasks and ran < count:
            task = self.tasks.popleft()
            run(task, self._files)
            self._results.put(task)
            ran += 1
        return ran

    def stop(self) -> None:
        assert not self.tasks, "a store that closes has waited for its threads"


class HeldStore(DirectoryStore):
    """The store with these executors. A call that waits for the threads lets them work."""

    writer: HeldExecutor
    keeper: HeldExecutor
    states_writer: HeldExecutor

    def _executors(self, *, threads: bool, loop_call: LoopCall) -> tuple[Executor, Executor, Executor]:
        self.writer, self.keeper, self.states_writer = (
            HeldExecutor(self._files, self._results) for _ in range(3)
        )
        return self.writer, self.keeper, self.states_writer

    def _wait_for_threads(self) -> None:
        for thread in (self.writer, self.keeper):
            thread.run()

    def close(self, *, within_s: float | None = None) -> bool:
        for thread in (self.writer, self.keeper, self.states_writer):
            thread.at_once = True
            thread.run()
        return super().close(within_s=within_s)


class Asked:
    """A question, and its answer."""

    def __init__(self, store: DirectoryStore, question: Question) -> None:
        self.calls = 0
        """How often the store has reported the answer."""
        self._store = store
        self._question = question
        self.request = ReadRequest("test", self._ready)
        self.refusal: Exception | None = None
        """What the question raised at once."""
        self.first: StoredLog | Later | None = None
        try:
            self.first = self.again()
        except (ValueError, KeyError, StorageError) as error:
            self.refusal = error

    def _ready(self) -> None:
        self.calls += 1

    def again(self) -> StoredLog | Later | None:
        """Ask the same question once more."""
        return self._store.ask(self._question, self.request)

    @property
    def waits(self) -> bool:
        """Whether there is no answer yet."""
        return self.first is LATER and not self.calls


class HeldHand(Hand):
    """A hand whose store works in small pieces."""

    def __init__(self, store: HeldStore, loop: ManualLoop) -> None:
        super().__init__(store, loop)
        self.held = store

    def ask_later(self, question: Question) -> Asked:
        """Ask, and do not wait."""
        return Asked(self.held, question)

    def work(self) -> None:
        """Let the threads and the loop work until nothing is left."""
        threads = (self.held.writer, self.held.keeper, self.held.states_writer)
        while sum(thread.run() for thread in threads) + self.loop.run_ready():
            pass

    def commit_all(self) -> None:
        """Commit, and let everything end."""
        self.store.commit()
        self.work()


def open_held(files: FaultyFiles, **arguments: Any) -> HeldHand:
    """Open the store of these files."""
    loop = ManualLoop()
    return HeldHand(open_in_memory(HeldStore, files, loop, **arguments), loop)
