"""[io] Tasks for the threads that only write and sync, and the way their results return to the loop's thread.

Laws: works run in the order of submission; a failed step ends its work and is never retried here.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from errno import EIO
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, Final, Protocol

from amqp_streams.storage.disk.files import Files, OpenFile, replace_file

LoopCall = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Write:
    """Write all buffers.

    `size_before`: the size to cut the file to if this or a later step fails (None: do not cut).

    A torn write would otherwise stay in front of the next one.
    """

    file: OpenFile
    buffers: Sequence[bytes | memoryview]
    position: int
    size_before: int | None = None
    created: bool = False
    """The file was created for this write: a failure removes it."""

    def run(self, files: Files) -> None:  # noqa: ARG002  # every step takes the files
        """Write."""
        self.file.write(self.buffers, self.position)


@dataclass(frozen=True, slots=True)
class SyncFile:
    """Wait until a file's data is on the disk."""

    file: OpenFile

    def run(self, files: Files) -> None:  # noqa: ARG002  # every step takes the files
        """Sync."""
        self.file.sync()


@dataclass(frozen=True, slots=True)
class SyncFolder:
    """Wait until a folder's names are on the disk."""

    path: Path

    def run(self, files: Files) -> None:
        """Sync."""
        files.fsync_dir(self.path)


@dataclass(frozen=True, slots=True)
class Replace:
    """Replace a small file with new content, durably."""

    path: Path
    data: bytes

    def run(self, files: Files) -> None:
        """Replace."""
        replace_file(files, self.path, self.data, sync=True)


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a file that may already be removed."""

    path: Path

    def run(self, files: Files) -> None:
        """Remove."""
        with contextlib.suppress(FileNotFoundError):
            files.unlink(self.path)


@dataclass(frozen=True, slots=True)
class Call:
    """Run a function."""

    function: Callable[[], None]

    def run(self, files: Files) -> None:  # noqa: ARG002  # every step takes the files
        """Call the function."""
        self.function()


Step = Write | SyncFile | SyncFolder | Replace | Remove | Call


@dataclass(slots=True, eq=False)
class Work:
    """Steps of which a failed one prevents the later ones. `lazy`: files that the interval timer syncs later.

    A step may add steps to the list that it is in, and files to `lazy`: it does what would take long on the
    event loop, and only then is it known what to write.

    After the run: `error`, `failed` (the step), `undone`: whether the files are as before, after a call or a
    write that failed, and `is_fault`: whether the error is a fault of our own, not of the disk.
    """

    steps: Sequence[Step]
    lazy: Sequence[OpenFile] = ()
    error: OSError | None = None
    failed: Step | None = None
    undone: bool = False
    is_fault: bool = False

    def run(self, files: Files) -> None:
        """Run the steps up to the first that fails."""
        for step in self.steps:
            try:
                step.run(files)
            except OSError as error:
                # Drop the traceback: its frames hold this work and its files, and a removed open file keeps
                # its disk space.
                self.error = error.with_traceback(None)
            except Exception as error:  # noqa: BLE001
                # A fault of our own must stop partitions, not the thread that all wait for.
                self.error, self.is_fault = OSError(EIO, f"{type(error).__name__}: {error}"), True
            else:
                continue
            self.failed = step
            # After any other failure, it is not known what the disk has.
            self.undone = isinstance(step, Write | Call) and self._undo(files)
            return

    def _undo(self, files: Files) -> bool:
        try:
            # Every write of the work, not only the failed one: the caller repeats or drops the work as a
            # whole.
            for step in self.steps:
                if isinstance(step, Write) and step.created:
                    Remove(step.file.path).run(files)
                elif isinstance(step, Write) and step.size_before is not None:
                    step.file.truncate(step.size_before)
        except OSError:
            # The disk fails here too: the files have an unknown content, which `undone` reports.
            return False
        return True


@dataclass(slots=True, eq=False)
class Task:
    """Works that are submitted together; `ended` is called with the task on the loop's thread."""

    works: Sequence[Work]
    ended: Callable[["Task"], None]
    seconds: float = 0.0
    has_run: bool = False
    """Set by the thread that ran the works. `ended` is called later, when the loop has time."""
    notes: Any = field(default=None)


class Executor(Protocol):
    """Runs tasks in order."""

    def submit(self, task: Task) -> None:
        """Run the task after those submitted before it; the result goes to the executor's `Results`."""

    def stop(self) -> None:
        """End after the submitted tasks."""


class Results:
    """Ended tasks that the loop's thread has not handled.

    Each is handled once, by the loop or by a waiting `close`.
    """

    def __init__(self, loop_call: LoopCall) -> None:
        self._loop_call: Final = loop_call
        self._queue: Final[queue.SimpleQueue[Task]] = queue.SimpleQueue()

    def put(self, task: Task) -> None:
        """Called from any thread. A closed loop is not an error: `close` handles the remaining tasks."""
        self._queue.put(task)
        with contextlib.suppress(RuntimeError):
            self._loop_call(self.handle)

    def handle(self) -> None:
        """On the loop's thread: handle every task that has ended."""
        while True:
            try:
                task = self._queue.get_nowait()
            except queue.Empty:
                return
            task.ended(task)

    def wait(self) -> None:
        """On the loop's thread: wait for one task and handle it."""
        task = self._queue.get()
        task.ended(task)


class ThreadExecutor:
    """A thread that runs tasks. With `sync_every_s` it syncs the lazy files of its works at that interval.

    `on_lazy_failure` is called in that thread for each lazy sync that failed.
    """

    def __init__(
        self,
        name: str,
        files: Files,
        results: Results,
        *,
        sync_every_s: float | None = None,
        on_lazy_failure: Callable[[OpenFile, OSError], None] | None = None,
    ) -> None:
        self._files: Final = files
        self._results: Final = results
        self._every: Final = sync_every_s
        self._on_lazy_failure: Final = on_lazy_failure
        self._lazy: dict[OpenFile, None] = {}
        self._queue: Final[queue.SimpleQueue[Task | None]] = queue.SimpleQueue()
        # A daemon: a process that fails before `stop` must still end.
        self._thread: Final = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, task: Task) -> None:
        """See `Executor.submit`."""
        self._queue.put(task)

    def stop(self) -> None:
        """See `Executor.stop`."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        due: float | None = None
        while True:
            try:
                task = self._queue.get(timeout=None if due is None else max(0.0, due - monotonic()))
            except queue.Empty:
                self._sync_lazy()
                due = None
                continue
            if task is None:
                self._sync_lazy()
                return
            run(task, self._files)
            if self._every is not None:
                self._lazy.update((file, None) for work in task.works for file in work.lazy)
                if self._lazy and due is None:
                    due = monotonic() + self._every
            self._results.put(task)
            # `get` may wait for long: a reference here would keep the task's files open.
            del task
            # While tasks keep coming, `get` does not time out.
            if due is not None and monotonic() >= due:
                self._sync_lazy()
                due = None

    def _sync_lazy(self) -> None:
        lazy, self._lazy = self._lazy, {}
        for file in lazy:
            try:
                file.sync()
            except OSError as error:
                if self._on_lazy_failure:
                    self._on_lazy_failure(file, error)


class InlineExecutor:
    """Runs each task at once in the caller's thread, for deterministic simulations. Does no lazy sync."""

    def __init__(self, files: Files, results: Results) -> None:
        self._files: Final = files
        self._results: Final = results

    def submit(self, task: Task) -> None:
        """See `Executor.submit`."""
        run(task, self._files)
        self._results.put(task)

    def stop(self) -> None:
        """See `Executor.stop`."""


def run(task: Task, files: Files) -> None:
    """Run the works in order; a failed work does not prevent the next."""
    began = perf_counter()
    for work in task.works:
        work.run(files)
    task.seconds = perf_counter() - began
    task.has_run = True
