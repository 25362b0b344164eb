"""[io] Transactional producers by key, each with a thread of its own.

The event loop asks; a thread waits for Kafka; the answer comes on the event loop's thread.

Laws: a key has at most one question in work. The answer to a question about a key that was released, or
fenced again, is dropped. A key that is released gives its thread and its producer back, as soon as what is in
work has ended.
"""

import logging
import threading
from collections.abc import Callable, Hashable
from queue import SimpleQueue
from time import monotonic
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from amqp_streams.errors import StorageError
from amqp_streams.kafka.sharing.producing import Ended, Outcome

log = logging.getLogger("amqp_streams.kafka")

K = TypeVar("K", bound=Hashable)
Q = TypeVar("Q")
Q_contra = TypeVar("Q_contra", contravariant=True)
Fenced: TypeAlias = Callable[[str | None], None]
"""Gets None, or why it is not fenced."""
Committed: TypeAlias = Callable[[Ended], None]


class FencingProducer(Protocol[Q_contra]):
    """A transactional producer. `fence`: see `TransactionalProducer`. `commit`: writes what was asked."""

    def fence(self, *, ends_hanging: bool) -> None: ...
    def commit(self, asked: Q_contra, /) -> Ended: ...
    def close(self) -> None: ...


class Workers(Generic[K, Q]):
    """`make`: makes the producer of a key, in its thread. `named`: a key in words.

    `loop_call`: calls a function on the event loop's thread, from any thread.
    """

    def __init__(
        self,
        make: Callable[[K], FencingProducer[Q]],
        *,
        named: Callable[[K], str],
        loop_call: Callable[..., object],
        threads_max: int,
    ) -> None:
        self._make: Final = make
        self._named: Final = named
        self._loop_call: Final = loop_call
        self._threads_max: Final = threads_max
        self._workers: Final[dict[K, _Worker[K, Q]]] = {}
        self._leaving: Final[set[_Worker[K, Q]]] = set()
        """Of keys that were released, until their threads have ended."""

    @property
    def threads(self) -> int:
        """The threads that have not ended."""
        return sum(worker.alive for worker in self._workers.values()) + len(self.ending)

    @property
    def ending(self) -> list[K]:
        """The keys that were released, once for each of their threads that has not ended."""
        self._leaving.difference_update([each for each in self._leaving if not each.alive])
        return [each.key for each in self._leaving]

    def fence(self, key: K, answered: Fenced, *, ends_hanging: bool = False) -> None:
        """Open a new producer of the key, which fences those before it on all nodes.

        `ends_hanging`: see `TransactionalProducer.fence`.
        """
        worker = self._workers.get(key)
        if worker is not None and worker.answer is not None:
            # It waits for Kafka. The new producer ends that wait: it fences the old one.
            self.release(key)
            worker = None
        if worker is None:
            if self.threads >= self._threads_max:
                reason = f"{self.threads} threads wait for Kafka (at most {self._threads_max})"
                self._loop_call(answered, f"{self._named(key)} cannot be fenced: {reason}")
                return
            worker = self._workers[key] = _Worker(key, self._named(key), self._make, self._loop_call)
        worker.ends_hanging = ends_hanging
        worker.ask(None, answered)

    def commit(self, key: K, asked: Q, ended: Committed) -> None:
        """Carry out a transaction. The key was fenced."""
        self._workers[key].ask((asked,), ended)

    def release(self, key: K) -> None:
        """Give up the producer of a key."""
        worker = self._workers.pop(key, None)
        if worker is not None:
            worker.leave()
            self._leaving.add(worker)

    def close(self, within_s: float) -> bool:
        """Release all keys. Returns whether all threads have ended in time."""
        for key in list(self._workers):
            self.release(key)
        until = monotonic() + within_s
        for worker in self._leaving:
            worker.join(max(0.0, until - monotonic()))
        return not self.threads


class _Worker(Generic[K, Q]):
    """The thread of a key. `answer`: what waits for it, on the event loop's thread."""

    def __init__(
        self, key: K, named: str, make: Callable[[K], FencingProducer[Q]], loop_call: Callable[..., object]
    ) -> None:
        self.answer: Fenced | Committed | None = None
        self.ends_hanging = False
        """Of the fence that is asked for next."""
        self.key: Final = key
        self._named: Final = named
        self._make: Final = make
        self._loop_call: Final = loop_call
        self._left = False
        self._producer: FencingProducer[Q] | None = None
        self._questions: Final[SimpleQueue[tuple[tuple[Q] | None] | None]] = SimpleQueue()
        """None as a question: end. None in it: fence."""
        # A name of Linux has at most 15 bytes.
        name = f"kafka-{self._named}".replace(" ", "-")[:64]
        self._thread: Final = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def ask(self, question: tuple[Q] | None, answer: Fenced | Committed) -> None:
        assert self.answer is None, f"{self._named} has a question in work"
        self.answer = answer
        self._questions.put((question,))

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
            asked = question[0]
            result = self._fence() if asked is None else self._commit(asked[0])
            self._loop_call(self._answer, result)
        self._discard()

    def _fence(self) -> str | None:
        self._discard()
        try:
            self._producer = self._make(self.key)
            self._producer.fence(ends_hanging=self.ends_hanging)
        except StorageError as error:
            self._discard()
            return str(error)
        except Exception as error:
            # The thread must live: it is asked again.
            log.exception("kafka_fence_failed what=%s", self._named)
            self._discard()
            return f"{self._named} cannot be fenced: {type(error).__name__}: {error}"
        return None

    def _commit(self, asked: Q) -> Ended:
        try:
            assert self._producer is not None, f"{self._named} is fenced before a commit"
            ended = self._producer.commit(asked)
        except Exception as error:
            log.exception("kafka_commit_failed what=%s", self._named)
            ended = Ended(Outcome.UNKNOWN, 0, f"{type(error).__name__}: {error}")
        if ended.outcome in {Outcome.UNKNOWN, Outcome.FENCED}:
            self._discard()
        return ended

    def _discard(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()
