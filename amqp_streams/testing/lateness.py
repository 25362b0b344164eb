"""Answers that come later, as those of a store on a network."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar, overload

from amqp_streams.errors import StorageError
from amqp_streams.storage.ports import LATER, Chunk, Later, ReadRequest
from amqp_streams.testing.memory_partition import MemoryPartition

T = TypeVar("T")


class _Answer:
    """An answer that comes later: `PendingRead`. `key`: what was asked."""

    def __init__(self, key: object, request: ReadRequest, answer: Callable[[], object]) -> None:
        self.key: Final = key
        self.ended = False
        self.result: object = None
        self.error: StorageError | ValueError | KeyError | None = None
        self._cancelled = False
        self._request: Final = request
        self._answer: Final = answer

    def cancel(self) -> None:
        """See `PendingRead.cancel`."""
        self._cancelled = True

    def run(self) -> None:
        """Answer, also if the request was cancelled: a change happens nevertheless."""
        try:
            self.result = self._answer()
        except (StorageError, ValueError, KeyError) as error:
            self.error = error
        self.ended = True
        if not self._cancelled:
            self._request.ready()


class Lateness:
    """Answers requests later. `defer` calls soon what it is given, never at once: a loop's `call_soon`."""

    def __init__(self, defer: Callable[[Callable[[], object]], object]) -> None:
        self.defer: Final = defer

    def answer(self, request: ReadRequest | None, key: object, answer: Callable[[], T]) -> T | Later:
        """The answer, or `LATER`; at once without a request. `key`: what the request asks for."""
        if request is None:
            return answer()
        pending = request.pending
        if not isinstance(pending, _Answer) or pending.key != key:
            request.cancel()
            request.pending = pending = _Answer(key, request, answer)
            self.defer(pending.run)
        if not pending.ended:
            return LATER
        request.pending = None
        if pending.error is not None:
            raise pending.error
        result: T = pending.result  # type: ignore[assignment]  # the same key has an answer of the same type
        return result


class LatePartition(MemoryPartition):
    """A partition of a `MemoryStore` that answers later."""

    def __init__(self, late: Lateness, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._late: Final = late

    @overload
    def read(self, at: int, bytes_max: int) -> Chunk | None: ...
    @overload
    def read(self, at: int, bytes_max: int, request: ReadRequest | None) -> Chunk | Later | None: ...
    def read(self, at: int, bytes_max: int, request: ReadRequest | None = None) -> Chunk | Later | None:
        """See `Partition.read`."""
        if at >= self.end:
            return None
        return self._late.answer(request, (self, at), partial(super().read, at, bytes_max))

    @overload
    def seek_timestamp(self, after_ms: int) -> int: ...
    @overload
    def seek_timestamp(self, after_ms: int, request: ReadRequest | None) -> int | Later: ...
    def seek_timestamp(self, after_ms: int, request: ReadRequest | None = None) -> int | Later:
        """See `Partition.seek_timestamp`."""
        return self._late.answer(request, (self, "time", after_ms), partial(super().seek_timestamp, after_ms))
