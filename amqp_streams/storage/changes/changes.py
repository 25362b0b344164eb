"""[io] Changes of logs in flight: threads do their I/O, and the event loop serves others meanwhile.

Laws: the changes of a log follow each other in the order of the questions. A change that has begun ends, also
if its request is cancelled. All methods are called on the event loop's thread.
"""

from collections import deque
from collections.abc import Callable, Generator, Hashable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from amqp_streams.storage.commits.flushing import Outstanding
from amqp_streams.storage.disk.files import Files
from amqp_streams.storage.disk.work import Call, Executor, Task, Work
from amqp_streams.storage.ports import LATER, Later, ReadRequest, StoredLog


class Stage(NamedTuple):
    """A part of a change: `call` runs in the thread of the executor, after the tasks submitted before it.

    If `call` is None, the stage only waits for these tasks.
    """

    executor: Executor
    call: Callable[[], None] | None


Change: TypeAlias = Generator[Stage, OSError | None, StoredLog | None]
"""A change: it runs on the event loop and yields its stages. It gets the error of each stage, or None."""
_DONE: Final = "done"
"""The note of a task whose result `Changes.finish` has used."""


class Changes:
    """The changes in flight. `wait`: blocks until all tasks submitted so far have run."""

    def __init__(self, files: Files, outstanding: Outstanding, *, wait: Callable[[], None]) -> None:
        self._files: Final = files
        self._outstanding: Final = outstanding
        self._wait: Final = wait
        self._queues: Final[dict[str, deque[_Asked]]] = {}
        """By name of the log, the change in flight and those that wait for it."""

    def answer(
        self, name: str, question: Hashable, request: ReadRequest, begin: Callable[[], Change]
    ) -> StoredLog | Later | None:
        """Begin a change of the log `name`, or return what it returned or raise what it raised.

        Returns `LATER` until the change has ended; then it calls `request.ready`. The same `question` with
        the same `request` asks about the change that was begun; another question cancels the request.
        """
        asked = request.pending
        if not isinstance(asked, _Asked) or asked.question != question:
            request.cancel()
            asked = request.pending = _Asked(name, question, request, begin())
            queue = self._queues.setdefault(name, deque())
            queue.append(asked)
            if len(queue) == 1:
                self._advance(asked, None)
                if asked.ended:
                    del self._queues[name]
        if not asked.ended:
            return LATER
        request.pending = None
        return asked.outcome()

    def finish(self, name: str, change: Change) -> StoredLog | None:
        """Do a change in this thread, after those of the same log that are in flight."""
        self._finish(name)
        error = None
        while True:
            try:
                stage = change.send(error)
            except StopIteration as end:
                answer: StoredLog | None = end.value
                return answer
            if stage.call is None:
                self._wait()
                continue
            work = Work([Call(stage.call)])
            work.run(self._files)
            error = work.error

    def finish_all(self) -> None:
        """Wait for all changes."""
        while self._queues:
            self._finish(next(iter(self._queues)))

    def _finish(self, name: str) -> None:
        while queue := self._queues.get(name):
            self._wait()
            task = queue[0].task
            assert task is not None, "the first change of a queue has begun"
            task.notes = _DONE
            self._continue(queue[0], task)

    def _advance(self, asked: "_Asked", error: OSError | None) -> None:
        try:
            stage = asked.change.send(error)
        except StopIteration as end:
            asked.ended, asked.result = True, end.value
        except Exception as failure:  # noqa: BLE001  `answer` raises it
            asked.ended, asked.error = True, failure
        else:
            work = Work([Call(stage.call)] if stage.call else [])
            asked.task = self._outstanding.submit(stage.executor, [work], partial(self._ran, asked))

    def _ran(self, asked: "_Asked", task: Task) -> None:
        if task.notes is not _DONE:
            self._continue(asked, task)

    def _continue(self, asked: "_Asked", task: Task) -> None:
        """Take the result of a stage. If the change has ended, begin those that wait for it."""
        queue = self._queues[asked.name]
        self._advance(asked, task.works[0].error)
        while queue and queue[0].ended:
            first = queue.popleft()
            if not queue:
                del self._queues[asked.name]
            # It may call `answer` for the next change of this log at once.
            first.report()
            if queue:
                self._advance(queue[0], None)


class _Asked:
    """A change that a request has asked for. See `PendingRead`."""

    def __init__(self, name: str, question: Hashable, request: ReadRequest, change: Change) -> None:
        self.name: Final = name
        self.question: Final = question
        self.change: Final = change
        self.task: Task | None = None
        """The stage in flight."""
        self.ended = False
        self.result: StoredLog | None = None
        self.error: Exception | None = None
        self._request: Final = request
        self._cancelled = False

    def cancel(self) -> None:
        """See `PendingRead.cancel`. The change is completed nevertheless."""
        self._cancelled = True

    def report(self) -> None:
        """Call `ready` of the request, unless it was cancelled."""
        if not self._cancelled:
            self._request.ready()

    def outcome(self) -> StoredLog | None:
        """Return what the change returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self.result
