"""Nodes over every store, whose peers and loop are the test's: what `InMemoryNode` is with the memory store.

A store with threads answers later: `run` waits for the answers that the node has asked for, and for nothing
else.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from amqp_streams.kafka.asking import KafkaOptions
from amqp_streams.kafka.partition import KafkaPartition
from amqp_streams.kafka.store import KafkaStore
from amqp_streams.storage import DirectoryStore
from amqp_streams.storage.ports import (
    LATER,
    Chunk,
    CommitDone,
    Later,
    PendingRead,
    ReadRequest,
    Store,
    StoredLog,
)
from amqp_streams.storage.questions import Question
from amqp_streams.testing import FaultyFiles, ManualLoop, MemoryStore
from amqp_streams.testing_amqp import InMemoryNode
from amqp_streams.wire.layout import DATA_BINARY8
from tests.amqp_streams.storage.conftest import NOW, ROOT, SMALL


class WatchedStore(KafkaStore):
    """A store that knows which requests it has not answered."""

    def __init__(self, options: KafkaOptions, loop: ManualLoop) -> None:
        self._waiting: Final[dict[ReadRequest, PendingRead | None]] = {}
        self.positions: Final[list[int]] = []
        """Where reads began, since a test cleared it."""
        super().__init__(options, loop_call=loop.call)

    @property
    def busy(self) -> bool:
        """Whether an answer is on its way to the node."""
        return self.pending_bytes > 0 or any(
            pending is not None and request.pending is pending and not getattr(pending, "ended", False)
            for request, pending in self._waiting.items()
        )

    def ask(self, question: Question, request: ReadRequest) -> StoredLog | Later | None:
        """See `Store.ask`."""
        return self._watched(request, super().ask(question, request))

    def fetch(
        self, partition: KafkaPartition, at: int, bytes_max: int, request: ReadRequest | None
    ) -> Chunk | Later | None:
        """See `Room.fetch`."""
        self.positions.append(at)
        return self._watched(request, super().fetch(partition, at, bytes_max, request))

    def first_after(self, partition: KafkaPartition, after_ms: int, request: ReadRequest | None) -> Any:
        """See `Room.first_after`."""
        return self._watched(request, super().first_after(partition, after_ms, request))

    def _watched(self, request: ReadRequest | None, answer: Any) -> Any:
        if request is not None:
            self._waiting.pop(request, None)
            if answer is LATER:
                self._waiting[request] = request.pending
        return answer


class StoreNode(InMemoryNode):
    """A node over any store. `calls`: the store's calls. `busy`: whether there will be more of them."""

    def __init__(
        self,
        logs: Mapping[str, int] | None = None,
        *,
        store: Store,
        calls: ManualLoop,
        busy: Callable[[], bool] = lambda: False,
        **settings: Any,
    ) -> None:
        self._calls: Final = calls
        self._busy: Final = busy
        super().__init__(logs, store=cast("MemoryStore", store), **settings)

    def turn(self) -> bool:
        """See `InMemoryNode.turn`."""
        ran = self._calls.run_ready() > 0
        return super().turn() or ran

    def awaited(self) -> bool:
        """See `InMemoryNode.awaited`."""
        if not self._busy():
            return False
        self._calls.run_until(lambda: not self._busy())
        return True

    def append(self, log: str, *bodies: bytes, partition: int = 0) -> None:
        """See `InMemoryNode.append`."""
        messages = [DATA_BINARY8 + bytes((len(body),)) + body for body in bodies]
        owner = self.store.logs[log].partitions[partition]
        owner.append(messages, bytes(len(messages)), self.clock())
        self.store.commit()
        self.run()
        # No link sent them, so the service wakes no reader.
        for consumer in self.service.node.committed(CommitDone(owner.queue, 0, 0, 0, 0.0, {}), [owner]):
            link = self.service.effects.consumer(consumer)
            assert link is not None
            self.service.pump_later(link)


def on_directory(logs: Mapping[str, int]) -> StoreNode:
    """A node over a directory on files in memory."""
    calls = ManualLoop()
    store = DirectoryStore.open(
        ROOT, loop_call=calls.call, now_ms=lambda: NOW, files=FaultyFiles(), threads=False, tuning=SMALL
    )
    return StoreNode(logs, store=store, calls=calls)
