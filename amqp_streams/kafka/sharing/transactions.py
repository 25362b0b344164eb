"""[io] The transactions of the buckets whose home this node is: one producer and one thread for each.

The event loop asks; a thread waits for Kafka; the answer comes on the event loop's thread.

Laws: a bucket has at most one question in work. The answer to a question about a bucket that was released, or
fenced again, is dropped. A bucket that is released gives its thread and its producer back, as soon as what is
in work has ended.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from time import monotonic
from typing import Final, Protocol, TypeAlias

from amqp_streams.errors import StorageError
from amqp_streams.kafka.sharing.producing import BucketProducer, Ended, Outcome

THREADS_MAX: Final = 32
"""The most threads: one for each bucket, and as many that wait for Kafka after their bucket was lost."""

log = logging.getLogger("amqp_streams.kafka")

Fenced: TypeAlias = Callable[[str | None], None]
"""Gets None, or why it is not fenced."""
Committed: TypeAlias = Callable[[Ended], None]


class FencingProducer(Protocol):
    """See `BucketProducer`."""

    def fence(self) -> None: ...
    def commit(self, changes: Mapping[str, bytes | None]) -> Ended: ...
    def close(self) -> None: ...


class Transactions:
    """`prefix`: of the nodes that share the topic; the ids of their producers begin with it.

    `loop_call`: calls a function on the event loop's thread, from any thread. `boot_ms`: reads
    CLOCK_BOOTTIME.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        topic: str,
        *,
        prefix: str,
        loop_call: Callable[..., object],
        boot_ms: Callable[[], int],
        threads_max: int = THREADS_MAX,
    ) -> None:
        self._settings: Final = settings
        self._topic: Final = topic
        self._prefix: Final = prefix
        self._loop_call: Final = loop_call
        self._boot_ms: Final = boot_ms
        self._threads_max: Final = threads_max
        self._workers: Final[dict[int, _Worker]] = {}
        self._leaving: Final[set[_Worker]] = set()
        """Of buckets that were released, until their threads have ended."""

    @property
    def threads(self) -> int:
        """The threads that have not ended."""
        return sum(worker.alive for worker in (*self._workers.values(), *self._leaving))

    def fence(self, bucket: int, answered: Fenced) -> None:
        """Open a new producer of the bucket, which fences those before it on all nodes."""
        worker = self._workers.get(bucket)
        if worker is not None and worker.answer is not None:
            # It waits for Kafka. The new producer ends that wait: it fences the old one.
            self.release(bucket)
            worker = None
        if worker is None:
            self._leaving.difference_update([each for each in self._leaving if not each.alive])
            if self.threads >= self._threads_max:
                reason = f"{self.threads} threads wait for Kafka (at most {self._threads_max})"
                self._loop_call(answered, f"bucket {bucket} cannot be fenced: {reason}")
                return
            worker = self._workers[bucket] = _Worker(bucket, self._open, self._loop_call)
        worker.ask(None, answered)

    def commit(self, bucket: int, changes: Mapping[str, bytes | None], ended: Committed) -> None:
        """Write states. See `BucketProducer.commit`. The bucket was fenced."""
        self._workers[bucket].ask(changes, ended)

    def release(self, bucket: int) -> None:
        """Give up the producer of a bucket that is not here any more."""
        worker = self._workers.pop(bucket, None)
        if worker is not None:
            worker.leave()
            self._leaving.add(worker)

    def close(self, within_s: float) -> bool:
        """Release all buckets. Returns whether all threads have ended in time."""
        for bucket in list(self._workers):
            self.release(bucket)
        until = monotonic() + within_s
        for worker in self._leaving:
            worker.join(max(0.0, until - monotonic()))
        return not self.threads

    def _open(self, bucket: int) -> FencingProducer:
        return BucketProducer(
            self._settings,
            self._topic,
            bucket,
            transactional_id=f"{self._prefix}.bucket.{bucket}",
            boot_ms=self._boot_ms,
        )


class _Worker:
    """The thread of a bucket. `answer`: what waits for it, on the event loop's thread."""

    def __init__(
        self, bucket: int, make: Callable[[int], FencingProducer], loop_call: Callable[..., object]
    ) -> None:
        self.answer: Fenced | Committed | None = None
        self._bucket: Final = bucket
        self._make: Final = make
        self._loop_call: Final = loop_call
        self._left = False
        self._producer: FencingProducer | None = None
        self._questions: Final[SimpleQueue[tuple[Mapping[str, bytes | None] | None] | None]] = SimpleQueue()
        """None as a question: end. None in it: fence."""
        name = f"kafka-bucket-{bucket}"
        self._thread: Final = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def ask(self, changes: Mapping[str, bytes | None] | None, answer: Fenced | Committed) -> None:
        assert self.answer is None, f"bucket {self._bucket} has a question in work"
        self.answer = answer
        self._questions.put((changes,))

    def leave(self) -> None:
        self._left = True
        self._questions.put(None)

    def join(self, within_s: float) -> None:
        self._thread.join(within_s)

    def _answer(self, result: str | Ended | None) -> None:
        answer, self.answer = self.answer, None
        if not self._left and answer is not None:
            answer(result)  # type: ignore[arg-type]  # of the question that `ask` took with it

    # -- in the thread

    def _run(self) -> None:
        while (question := self._questions.get()) is not None:
            changes = question[0]
            result = self._fence() if changes is None else self._commit(changes)
            self._loop_call(self._answer, result)
        self._discard()

    def _fence(self) -> str | None:
        self._discard()
        try:
            self._producer = self._make(self._bucket)
            self._producer.fence()
        except StorageError as error:
            self._discard()
            return str(error)
        except Exception as error:
            # The thread must live: the home fences again.
            log.exception("kafka_fence_failed bucket=%s", self._bucket)
            self._discard()
            return f"bucket {self._bucket} cannot be fenced: {type(error).__name__}: {error}"
        return None

    def _commit(self, changes: Mapping[str, bytes | None]) -> Ended:
        try:
            assert self._producer is not None, "a bucket is fenced before a commit"
            ended = self._producer.commit(changes)
        except Exception as error:
            log.exception("kafka_commit_failed bucket=%s", self._bucket)
            ended = Ended(Outcome.UNKNOWN, 0, f"{type(error).__name__}: {error}")
        if ended.outcome in {Outcome.UNKNOWN, Outcome.FENCED}:
            self._discard()
        return ended

    def _discard(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()
