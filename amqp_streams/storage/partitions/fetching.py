"""[io] Reads that would wait for the disk: threads make them, and the event loop continues meanwhile.

Laws: the owners of reads take turns, so that an owner with many reads does not delay the others. At most
`READS_MAX` reads (or another number) are in flight, with at most `BYTES_MAX` bytes, or one larger read. A
cancelled read is not started; if it is in flight, its result is kept for other readers.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

from amqp_streams.storage.disk.work import Call, Executor, Task, Work
from amqp_streams.storage.ports import ReadRequest, Use

READS_MAX: Final = 4
"""More do not help one disk, and each costs a thread."""
BYTES_MAX: Final = 64 << 20


@dataclass(slots=True, eq=False)
class Fetch:
    """A read for a request. `load` runs in a thread; `keep` gets its result on the event loop's thread.

    `key`: what is read. `error`: why it failed, after it has `ended`.
    """

    request: ReadRequest
    key: Hashable
    size: int
    load: Callable[[], Any]
    keep: Callable[[Any], object]
    cancelled: bool = False
    ended: bool = False
    error: OSError | None = None
    result: Any = None
    dropped: Callable[["Fetch"], None] | None = None
    """Called when the read is given up before it was started."""

    def cancel(self) -> None:
        """See `PendingRead.cancel`."""
        self.cancelled = True
        if self.dropped is not None:
            self.dropped(self)

    def run(self) -> None:
        """Read, in a thread."""
        self.result = self.load()


class Fetching:
    """The reads of a store. `thread` returns an executor for each number; the first read starts them."""

    def __init__(self, thread: Callable[[int], Executor], reads_max: int = READS_MAX) -> None:
        self._thread: Final = thread
        self._reads_max: Final = reads_max
        self._all: tuple[Executor, ...] = ()
        self._free: Final[list[Executor]] = []
        self._waiting: Final[OrderedDict[Hashable, dict[Fetch, None]]] = OrderedDict()
        """By owner, in the order of their turns."""
        self._running = 0
        self._bytes = 0

    def uses(self) -> dict[str, Use]:
        """How much of each bound is used, by name."""
        return {
            "storage_reads": Use(self._running, self._reads_max),
            "storage_read_bytes": Use(self._bytes, BYTES_MAX),
        }

    def begin(self, fetch: Fetch) -> None:
        """Read when it is the turn of the owner. Replaces an earlier read of the request."""
        if not self._all:
            self._all = tuple(map(self._thread, range(self._reads_max)))
            self._free.extend(self._all)
        fetch.request.cancel()
        fetch.request.pending = fetch
        fetch.dropped = self._drop
        self._waiting.setdefault(fetch.request.owner, {})[fetch] = None
        self._start()

    def stop(self) -> None:
        """End the threads after the reads in flight. No read begins after this."""
        self._waiting.clear()
        for executor in self._all:
            executor.stop()

    def _drop(self, fetch: Fetch) -> None:
        """Remove a read that waits: clients that attach and detach must not fill the memory."""
        owner = fetch.request.owner
        fetches = self._waiting.get(owner, {})
        fetches.pop(fetch, None)
        if not fetches:
            self._waiting.pop(owner, None)

    def _start(self) -> None:
        while self._free and self._waiting:
            owner, fetches = next(iter(self._waiting.items()))
            fetch = next(iter(fetches))
            if self._running and self._bytes + fetch.size > BYTES_MAX:
                return
            self._waiting.move_to_end(owner)
            self._drop(fetch)
            fetch.dropped = None
            self._running += 1
            self._bytes += fetch.size
            executor = self._free.pop()
            executor.submit(Task([Work([Call(fetch.run)])], self._ended, notes=(fetch, executor)))

    def _ended(self, task: Task) -> None:
        fetch, executor = task.notes
        self._free.append(executor)
        self._running -= 1
        self._bytes -= fetch.size
        fetch.ended, fetch.error = True, task.works[0].error
        if fetch.error is None:
            fetch.keep(fetch.result)
            fetch.result = None
        self._start()
        if not fetch.cancelled:
            fetch.request.ready()
