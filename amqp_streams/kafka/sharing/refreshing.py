"""[io] Answers when the states in memory are at least as new as a question.

Law: whatever asks, one round of questions to Kafka is in flight, and the next begins at least `GAP_MS`
later. Everything that asks meanwhile waits for the next round.
"""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final, TypeAlias

from amqp_streams.errors import StorageError
from amqp_streams.kafka.brokers.administration import Administration
from amqp_streams.kafka.brokers.taking import Place

ROUND_MS: Final = 5000
"""How long a round may take."""
GAP_MS: Final = 100
"""The shortest time between the beginnings of two rounds."""

Answered: TypeAlias = Callable[[StorageError | None], None]


class Refreshing:
    """`position`: up to which number this node has read a bucket. Called on the event loop's thread."""

    def __init__(
        self,
        administration: Administration,
        topic: str,
        buckets: int,
        position: Callable[[int], int],
        *,
        loop_call: Callable[..., object],
        boot_ms: Callable[[], int],
    ) -> None:
        self._administration: Final = administration
        self._topic: Final = topic
        self._buckets: Final = buckets
        self._position: Final = position
        self._loop_call: Final = loop_call
        self._boot_ms: Final = boot_ms
        self._waiting: list[Answered] = []
        self._running: list[Answered] = []
        self._round = 0
        self._began_ms = boot_ms() - GAP_MS
        self._ends: Final[dict[int, int]] = {}

    def ask(self, answered: Answered) -> None:
        """Call `answered` when all that was written before this call was read, or with the reason."""
        self._waiting.append(answered)
        self.tick()

    def tick(self) -> None:
        """Called several times a second."""
        now_ms = self._boot_ms()
        if self._running:
            ends = self._ends
            if len(ends) == self._buckets and all(self._position(each) >= ends[each] for each in ends):
                self._answer(None)
            elif now_ms - self._began_ms >= ROUND_MS:
                self._answer(
                    StorageError(f"topic {self._topic!r} was not read to its end within {ROUND_MS // 1000} s")
                )
        if not self._running and self._waiting and now_ms - self._began_ms >= GAP_MS:
            self._begin(now_ms)

    def _begin(self, now_ms: int) -> None:
        self._running, self._waiting = self._waiting, []
        self._round += 1
        self._began_ms = now_ms
        self._ends.clear()
        for bucket in range(self._buckets):
            asked = self._administration.ask_written_end(Place(self._topic, bucket))
            asked.add_done_callback(partial(self._loop_call, self._asked, self._round, bucket))

    def _asked(self, number: int, bucket: int, future: "Future[int]") -> None:
        if number != self._round or not self._running:
            return
        try:
            self._ends[bucket] = future.result()
        except StorageError as error:
            self._answer(error)
        else:
            self.tick()

    def _answer(self, failure: StorageError | None) -> None:
        answered, self._running = self._running, []
        for each in answered:
            each(failure)
