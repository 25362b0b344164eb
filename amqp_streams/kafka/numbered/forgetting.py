"""Forgets a producer that stored nothing for the longest time, so that a new one fits. Pure.

Law: the record is removed by a transaction of the producer itself, after the fence, and only if it is still
the record that was found. So no number of a producer that sends is lost.
"""

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

from amqp_streams.kafka.numbered.producing import (
    Close,
    Commit,
    Effect,
    Fence,
    NumberedProducer,
    Outcome,
    Read,
)
from amqp_streams.kafka.numbered.records import ProducerKey

FORGET_MS: Final = 20_000
"""How long it may take."""


class _Step(Enum):
    FENCING = auto()
    READING = auto()
    REMOVING = auto()
    OVER = auto()


class Forgetting:
    """One producer that will be forgotten. `then`: the producer that takes its place."""

    def __init__(  # noqa: PLR0917  what it shares with the producers of a node
        self,
        key: ProducerKey,
        found: bytes,
        then: NumberedProducer,
        effects: list[Effect],
        attempts: Iterator[int],
        now_ms: int,
    ) -> None:
        self.key: Final = key
        self.found: Final = found
        self.then: Final = then
        self.failure: str | None = None
        self._effects: Final = effects
        self._attempt: Final = next(attempts)
        self._until_ms: Final = now_ms + FORGET_MS
        self._step = _Step.FENCING
        effects.append(Fence(key, self._attempt))

    @property
    def over(self) -> bool:
        """Whether it has ended; `failure` says why the producer may not be forgotten."""
        return self._step is _Step.OVER

    def fenced(self, attempt: int, failure: str | None) -> None:
        """See `NumberedProducer.fenced`."""
        if attempt != self._attempt or self._step is not _Step.FENCING:
            return
        if failure is not None:
            self.end(failure)
            return
        self._step = _Step.READING
        self._effects.append(Read(self.key, attempt))

    def read(self, attempt: int, failure: str | None, value: bytes | None) -> None:
        """The value of the record after the fence, or why it is not known."""
        if attempt != self._attempt or self._step is not _Step.READING:
            return
        if failure is not None or value != self.found:
            # It has stored events since, or another node was faster.
            self.end(failure)
            return
        self._step = _Step.REMOVING
        self._effects.append(Commit(self.key, attempt, None))

    def ended(self, attempt: int, outcome: Outcome, reason: str) -> None:
        """See `NumberedProducer.ended`."""
        if attempt == self._attempt and self._step is _Step.REMOVING:
            self.end(None if outcome is Outcome.COMMITTED else reason)

    def tick(self, now_ms: int) -> None:
        """Called several times a second."""
        if not self.over and now_ms >= self._until_ms:
            self.end("Kafka does not answer")

    def end(self, failure: str | None = None) -> None:
        """Give the thread back."""
        if not self.over:
            self._step, self.failure = _Step.OVER, failure
            self._effects.append(Close(self.key))
