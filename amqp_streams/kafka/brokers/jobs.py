"""[io] Questions to Kafka that wait elsewhere, and are answered later on the event loop's thread."""

import threading
from collections.abc import Callable, Collection, Hashable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from amqp_streams.errors import StorageError
from amqp_streams.storage.ports import LATER, Later, ReadRequest

THREADS: Final = 4
"""How many questions wait for Kafka at once; further ones wait for their turn."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Job(Generic[R]):
    """What is asked, and what is done with the result on the event loop's thread.

    `ask` waits in a thread, or with `waits=False` returns a future at once. It raises StorageError,
    ValueError or KeyError. `change`: it happens although the request is cancelled.
    """

    ask: Callable[[], Any]
    finish: Callable[[Any], R]
    change: bool = False
    waits: bool = True


class Jobs:
    """The jobs of a store. `loop_call`: calls a function on the event loop's thread, from any thread."""

    def __init__(self, loop_call: Callable[..., object]) -> None:
        self._loop_call: Final = loop_call
        self._threads: Final = ThreadPoolExecutor(THREADS, thread_name_prefix="kafka-questions")

    def wait(self, job: Job[R]) -> R:
        """Do a job, and wait for it. Raises what it raises."""
        return job.finish(self._begin(job).result())

    def answer(self, request: ReadRequest, key: Hashable, begin: Callable[[], Job[R]]) -> R | Later:
        """The answer, or `LATER`. `key`: what the request asks for. `begin` may raise at once."""
        pending = request.pending
        if not isinstance(pending, _Asked) or pending.key != key:
            job = begin()
            request.cancel()
            pending = request.pending = _Asked(key, request, job)
            pending.future = self._begin(job)
            pending.future.add_done_callback(partial(self._asked, pending))
        if not pending.ended:
            return LATER
        request.pending = None
        if pending.error is not None:
            raise pending.error
        result: R = pending.result
        return result

    def submit(self, ask: Callable[[], R]) -> "Future[R]":
        """Ask in a thread."""
        return self._threads.submit(ask)

    def _begin(self, job: Job[R]) -> "Future[Any]":
        return self._threads.submit(job.ask) if job.waits else job.ask()

    def close(self) -> None:
        """End the threads. What was not begun is dropped."""
        self._threads.shutdown(cancel_futures=True)

    def _asked(self, asked: "_Asked", future: "Future[Any]") -> None:
        self._loop_call(asked.end, future)


class _Asked:
    """A job for a request: `PendingRead`."""

    def __init__(self, key: Hashable, request: ReadRequest, job: Job[Any]) -> None:
        self.key: Final = key
        self.ended = False
        self.result: Any = None
        self.error: StorageError | ValueError | KeyError | None = None
        self.future: Future[Any] | None = None
        self._request: Final = request
        self._job: Final = job
        self._cancelled = False

    def cancel(self) -> None:
        """See `PendingRead.cancel`."""
        self._cancelled = True
        # What does not wait in a thread may answer others as well.
        if self._job.waits and not self._job.change and self.future is not None:
            self.future.cancel()

    def end(self, future: "Future[Any]") -> None:
        """Take the result. A result of a cancelled request counts as well: it is news about Kafka."""
        try:
            self.result = self._job.finish(future.result())
        except CancelledError:
            return
        except (StorageError, ValueError, KeyError) as error:
            self.error = error
        self.ended = True
        if not self._cancelled:
            self._request.ready()


def joined(futures: "Collection[Future[Any]]", then: Callable[[], R]) -> "Future[R]":
    """What `then` returns or raises after all futures have ended, in the thread of the last one."""
    whole: Future[R] = Future()
    left, lock = len(futures), threading.Lock()

    def finish() -> None:
        try:
            whole.set_result(then())
        except Exception as error:  # noqa: BLE001  a future carries whatever was raised
            whole.set_exception(error)

    def ended(_: object) -> None:
        nonlocal left
        with lock:
            left -= 1
            last = left == 0
        if last:
            finish()

    for future in futures:
        future.add_done_callback(ended)
    if not futures:
        finish()
    return whole
