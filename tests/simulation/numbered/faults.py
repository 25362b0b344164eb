"""Faults that are planted in idempotent producers, to show that the checks of the simulation find them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from amqp_streams.kafka.numbered.producing import NumberedProducer, Outcome, Phase
from tests.simulation.numbered.nodes import Process

Plant = AbstractContextManager[object]


def _around(owner: type, name: str, make: Callable[[Any], Any]) -> Plant:
    """Replace a method by what `make` returns for it."""
    return patch.object(owner, name, make(getattr(owner, name)))


def no_fence_after_a_doubtful_end() -> Plant:
    def make(original: Any) -> Any:
        def transacted(self: NumberedProducer, outcome: Outcome, reason: str, now_ms: int) -> None:
            original(self, Outcome.ABORTED if outcome is Outcome.UNKNOWN else outcome, reason, now_ms)

        return transacted

    return _around(NumberedProducer, "_transacted", make)


def doubtful_events_accepted() -> Plant:
    def judge(self: NumberedProducer, _record: object) -> None:
        self._end_flight(None)

    return patch.object(NumberedProducer, "_judge", judge)


def doubtful_events_refused_and_forgotten() -> Plant:
    """The record after the fence is not taken over."""

    def make(original: Any) -> Any:
        def read(self: NumberedProducer, attempt: int, record: Any, now_ms: int) -> None:
            before, doubt = self.record, self._flight is not None
            original(self, attempt, record, now_ms)
            if doubt and self.phase in {Phase.READY, Phase.COMMITTING}:
                self.record = before

        return read

    return _around(NumberedProducer, "read", make)


def events_after_an_aborted_transaction_stored() -> Plant:
    def refuse(self: NumberedProducer, reason: str) -> None:
        self._end_flight(reason)

    return patch.object(NumberedProducer, "_refuse", refuse)


def read_that_ends_before_open_transactions() -> Plant:
    def read(self: Process, key: Any, attempt: int) -> None:
        kafka, bucket = self.world.kafka, key.bucket % len(self.world.kafka.buckets)

        def then(end: int | None) -> None:
            self._follow_to(bucket, end or 0)
            self.producers.read(key, attempt, None, self.now_ms())

        self._ask(lambda: kafka.stable(bucket), then)

    return patch.object(Process, "_read", read)


def attach_answered_without_a_proof() -> Plant:
    def make(original: Any) -> Any:
        def begin(self: NumberedProducer, now_ms: int) -> None:
            if self.phase in {Phase.READY, Phase.COMMITTING}:
                self._answer(self._asked)
            else:
                original(self, now_ms)

        return begin

    return _around(NumberedProducer, "begin", make)


FAULTS: dict[str, tuple[Callable[[], Plant], int, bool]] = {
    "no fence after a doubtful end": (no_fence_after_a_doubtful_end, 0, True),
    "doubtful events accepted": (doubtful_events_accepted, 5, True),
    "doubtful events refused and forgotten": (doubtful_events_refused_and_forgotten, 72, True),
    "events after an aborted transaction stored": (events_after_an_aborted_transaction_stored, 0, True),
    "read that ends before open transactions": (read_that_ends_before_open_transactions, 3, True),
    "attach answered without a proof": (attach_answered_without_a_proof, 2, False),
}
"""Each with a seed in which it is found, and whether that run is a harsh one."""
