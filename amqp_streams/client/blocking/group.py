"""The blocking face of a member of a consumer group: `amqp_streams.client.consuming.group` without `await`."""

import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Self

from amqp_streams.client.blocking.background import Background
from amqp_streams.client.consuming import group
from amqp_streams.client.options import ACCEPTED, Outcome
from amqp_streams.client.received import ReceivedEvent

_BATCH_MAX: Final = 256
_SETTLE_S: Final = 0.05
"""Iterating with settle="auto" tells the node so often what is done: less would come again to another, should we die."""


class GroupConsumer:
    """See `amqp_streams.client.consuming.group.GroupConsumer`. Callbacks are called on the client's own thread, and must not wait there."""

    def __init__(self, thread: Background, inner: group.GroupConsumer) -> None:
        self._thread: Final = thread
        self._inner: Final = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that are ours now."""
        return self._inner.partitions

    def receive(self, max_events: int = 500, timeout: float | None = None) -> list[ReceivedEvent]:
        """The next events, at most `max_events`: waits for the first; an empty list when `timeout` seconds passed without one."""
        return self._thread.call(self._inner.receive(max_events, timeout))

    def __iter__(self) -> Iterator[ReceivedEvent]:
        """Events one by one, for ever; those whose partition moved away meanwhile are left out. Leaving the loop keeps the rest."""
        while True:
            batch = self.receive(_BATCH_MAX)
            settled, since_s = 0, time.monotonic()
            for index, event in enumerate(batch):
                if event.revoked:
                    continue
                try:
                    yield event
                except GeneratorExit:
                    self._thread.tell(self._inner.put_back, batch[index + 1 :])
                    raise
                if self._inner.auto and (now_s := time.monotonic()) - since_s >= _SETTLE_S:
                    self.settle(batch[settled : index + 1])
                    settled, since_s = index + 1, now_s

    def settle(self, events: ReceivedEvent | Iterable[ReceivedEvent], outcome: Outcome = ACCEPTED) -> None:
        """Say what became of events. Those settled before, or `revoked`, are passed over. Never waits."""
        given = [events] if isinstance(events, ReceivedEvent) else list(events)
        self._thread.tell(self._inner.settle, given, outcome)

    def open(self, *, timeout: float | None = 30.0) -> None:
        """Ask for partitions, as `with` does."""
        self._thread.call(self._inner.open(timeout=timeout))

    def close(self, *, timeout: float | None = 30.0) -> None:
        """Leave the group: others get its partitions at once. With settle="auto" what was handed out counts as accepted."""
        self._thread.call(self._inner.close(timeout=timeout))

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._thread.call(self._inner.__aexit__(kind, error, trace))
