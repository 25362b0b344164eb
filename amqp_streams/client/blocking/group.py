"""The blocking member of a consumer group: `amqp_streams.client.consuming.group` without `await`."""

import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Self

from amqp_streams.client.blocking.wrapper import Wrapper, waits
from amqp_streams.client.consuming import group
from amqp_streams.client.errors import EndpointError
from amqp_streams.client.options import ACCEPTED, Outcome
from amqp_streams.client.received import ReceivedEvent

_BATCH_MAX: Final = 256
_SETTLE_S: Final = 0.05
"""How often, in seconds, an iteration with settle="auto" settles the events that it has passed. It bounds
what other members receive again if this process dies.
"""


class GroupConsumer(Wrapper[group.GroupConsumer]):
    """See `amqp_streams.client.consuming.group.GroupConsumer`.

    `on_assigned` and `on_revoked` are called on the client's own thread and must not block.
    """

    receive = waits(group.GroupConsumer.receive)
    open = waits(group.GroupConsumer.open)
    close = waits(group.GroupConsumer.close)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that this member owns now."""
        return self._inner.partitions

    @property
    def refusal(self) -> EndpointError | None:
        """Why the node refused the last attach after it had waited; None after one that was not refused."""
        return self._inner.refusal

    def __iter__(self) -> Iterator[ReceivedEvent]:
        """Iterate over the events without an end.

        Events of partitions that were taken away meanwhile are skipped.

        If the program leaves the loop, the next `for` or `receive` starts with the events that it has not
        seen.
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
                    self._thread.schedule(self._inner.put_back, batch[index + 1 :])
                    raise
                if self._inner.auto and (now_s := time.monotonic()) - since_s >= _SETTLE_S:
                    self.settle(batch[settled : index + 1])
                    settled, since_s = index + 1, now_s

    def settle(self, events: ReceivedEvent | Iterable[ReceivedEvent], outcome: Outcome = ACCEPTED) -> None:
        """Give events an outcome. Events that are already settled, or `revoked`, are skipped. Never waits."""
        given = [events] if isinstance(events, ReceivedEvent) else list(events)
        self._thread.schedule(self._inner.settle, given, outcome)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.call(self._inner.__aexit__(kind, error, trace))
