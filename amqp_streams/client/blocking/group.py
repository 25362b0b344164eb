"""The blocking face of a member of a consumer group:

`amqp_streams.client.consuming.group` without `await`.
"""

import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Self

from amqp_streams.client.blocking.face import Face, waits
from amqp_streams.client.consuming import group
from amqp_streams.client.options import ACCEPTED, Outcome
from amqp_streams.client.received import ReceivedEvent

_BATCH_MAX: Final = 256
_SETTLE_S: Final = 0.05
"""Iterating with settle="auto" tells the node so often what is done: less would come again to another, should
we die.
"""


class GroupConsumer(Face[group.GroupConsumer]):
    """See `amqp_streams.client.consuming.group.GroupConsumer`.

    Callbacks are called on the client's own thread, and must not wait there.
    """

    receive = waits(group.GroupConsumer.receive)
    open = waits(group.GroupConsumer.open)
    close = waits(group.GroupConsumer.close)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that are ours now."""
        return self._inner.partitions

    def __iter__(self) -> Iterator[ReceivedEvent]:
        """Events one by one, forever; those whose partition moved away meanwhile are left out.

        Leaving the loop keeps the rest.
        """
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

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.call(self._inner.__aexit__(kind, error, trace))
