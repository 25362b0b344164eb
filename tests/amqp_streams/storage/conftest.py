"""The stores that are tested, each with a hand that makes time pass in it.

`conformance/` is the suite that every store passes: docs/stores.md.
"""

import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import StorageError
from amqp_streams.storage import DirectoryStore, Tuning
from amqp_streams.storage.ports import (
    LATER,
    CommitDone,
    CommitQueue,
    Later,
    Partition,
    ReadRequest,
    Store,
    StoredLog,
)
from amqp_streams.storage.questions import Question
from amqp_streams.testing import FaultyFiles, Lateness, ManualLoop, MemoryStore, Uneven

S = TypeVar("S", bound=DirectoryStore)
T = TypeVar("T")
NOW = 1_700_000_000_000
ROOT = Path("/data")
SMALL = Tuning(
    journal_bytes=64 << 10,
    direct_bytes_min=4 << 10,
    direct_large_bytes=8 << 10,
    flush_bytes=2 << 10,
    recent_bytes=8 << 10,
    recent_overhead_bytes=64,
    sync_bytes=4 << 10,
    index_bytes=8 << 10,
    cache_bytes=16 << 10,
    open_files=4,
    reserve_bytes=4 << 10,
    states_bytes=2 << 10,
    blocks_bytes=64 << 10,
    compress_block_bytes=20 << 10,
    compress_piece_bytes=24 << 10,
    compress_call_bytes=200 << 10,
    compress_bytes_min=1 << 10,
)
"""Limits that are so small that a few records reach them. In production they are megabytes."""


class Hand:
    """Commits, and waits for threads."""

    def __init__(self, store: Store, loop: ManualLoop) -> None:
        self.store = store
        self.loop = loop
        self.done: list[CommitDone] = []
        self.written: list[tuple[int, StorageError | None]] = []
        """Numbers of the states' writes that ended, and why they failed."""
        self._queues: dict[CommitQueue, None] = {}
        store.on_commit = self.done.append
        store.states.on_written = lambda number, failure: self.written.append((number, failure))

    def commit(self) -> CommitDone | None:
        """Commit the pending appends and wait for the commits of all queues. Returns the last one."""
        count, before = len(self.done), {queue: queue.sequence for queue in self._known_queues()}
        self.store.commit()
        busy = {queue for queue in before if queue.sequence != before[queue] or queue.pending_bytes}
        if not busy:
            return None
        self.loop.run_until(lambda: busy <= {done.queue for done in self.done[count:]})
        return self.done[-1]

    def _known_queues(self) -> Iterable[CommitQueue]:
        """The queues of all partitions, also of logs that were deleted."""
        for log in self.store.logs.values():
            self._queues |= {partition.queue: None for partition in log.partitions}
        return self._queues

    def keep(self, changes: Mapping[str, bytes | None]) -> StorageError | None:
        """Write states and wait for it; why it failed, if it did."""
        number = self.store.states.write(changes)
        self.loop.run_until(lambda: bool(self.written) and self.written[-1][0] >= number)
        return self.written[-1][1]

    def ask(self, question: Question) -> StoredLog | None:
        """Ask the store, and wait for the answer."""
        return self.answer(partial(self.store.ask, question))

    def answer(self, call: Callable[[ReadRequest], T | Later]) -> T:
        """Make a call with a request, and wait for its answer."""
        ready: list[None] = []
        request = ReadRequest("hand", lambda: ready.append(None))
        waits = 0
        while (found := call(request)) is LATER:
            waits += 1
            assert call(request) is LATER, "asking again changes nothing"
            self.loop.run_until(lambda waits=waits: len(ready) == waits)  # type: ignore[misc]  # a default of a lambda
        assert len(ready) == waits
        assert request.pending is None
        return found

    def write(self, partition: Partition, *messages: bytes, now_ms: int = NOW) -> int | None:
        """Append a record and commit it. Returns its number, if the store knows it at the append."""
        base = partition.append(list(messages), bytes(len(messages)), now_ms)
        done = self.commit()
        assert done is None or not done.failures
        return base


def open_inline(files: FaultyFiles, **arguments: Any) -> Hand:
    """A store on files in memory, everything in this thread."""
    loop = ManualLoop()
    return Hand(open_in_memory(DirectoryStore, files, loop, **arguments), loop)


def open_in_memory(kind: type[S], files: FaultyFiles, loop: ManualLoop, **arguments: Any) -> S:
    """Open a store of this kind on files in memory, without threads."""
    store = kind.open(
        ROOT,
        loop_call=loop.call,
        now_ms=lambda: NOW,
        files=files,
        threads=False,
        **{"tuning": SMALL, **arguments},
    )
    assert isinstance(store, kind)
    return store


def open_real(path: Path, **arguments: Any) -> Hand:
    """A store on this machine's disk, with its threads."""
    loop = ManualLoop()
    store = DirectoryStore.open(
        path, loop_call=loop.call, now_ms=lambda: NOW, **{"tuning": SMALL, **arguments}
    )
    return Hand(store, loop)


def read_all(partition: Partition, at: int = 0, bytes_max: int = 1 << 20) -> list[bytes]:
    """Every message from `at` on, checking that the numbers follow each other."""
    messages: list[bytes] = []
    at = max(at, partition.start)
    while (chunk := partition.read(at, bytes_max)) is not None:
        assert chunk.base >= at if partition.gaps else chunk.base == at
        assert len(chunk.messages) == len(chunk.header_sizes) == len(chunk.timestamps) > 0
        if chunk.offsets is not None:
            assert partition.gaps
            assert len(chunk.offsets) == len(chunk)
            assert list(chunk.offsets) == sorted(set(chunk.offsets))
        messages += chunk.messages
        at = chunk.end
    assert at <= partition.end if partition.gaps else at == partition.end
    return messages


def entries(partition: Partition) -> list[tuple[int, bytes]]:
    """The number and the message of each retained record."""
    found: list[tuple[int, bytes]] = []
    at = partition.start
    while (chunk := partition.read(at, 1)) is not None:
        found.append((chunk.base, chunk.messages[0]))
        at = chunk.base + 1
    return found


def stamps(partition: Partition) -> list[int]:
    """The append time of each retained record."""
    chunks = [partition.read(number, 1) for number, _ in entries(partition)]
    return [chunk.timestamps[0] for chunk in chunks if chunk is not None]


Opener = Callable[[], Hand]


@pytest.fixture(params=["memory", "separate", "uneven", "late", "inline", "real"])
def hand(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hand]:
    """A hand for each kind of store.

    In memory, "separate": each partition is a queue of its own; "uneven": in addition, numbers have gaps and
    times fall; "late": in addition, requests are answered later.
    """
    if request.param in {"memory", "separate", "uneven", "late"}:
        loop = ManualLoop()
        uneven = Uneven() if request.param in {"uneven", "late"} else None
        late = Lateness(loop.call) if request.param == "late" else None
        store = MemoryStore(separate=request.param != "memory", uneven=uneven, late=late)
        store.states.defer = loop.call
        hand = Hand(store, loop)
    elif request.param == "inline":
        hand = open_inline(FaultyFiles())
    else:
        hand = open_real(tmp_path)
    yield hand
    hand.store.close()


@pytest.fixture
def partition(hand: Hand) -> Partition:
    """The one partition of a new log."""
    return hand.store.create("log", LogSettings(), incarnation="i").partitions[0]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    path = tmp_path / "tiny"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", path], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a tmpfs needs root")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


FOUR = LogSettings(partitions=4, segment_bytes=64 << 10)


def four_partitions(hand: Hand) -> tuple[Partition, Partition, Partition, Partition]:
    """The partitions of the log `log`, which is created if the store does not have it."""
    log = hand.store.logs.get("log") or hand.store.create("log", FOUR, incarnation="i")
    first, second, third, fourth = log.partitions
    return first, second, third, fourth


def commit_failures(hand: Hand, *appends: tuple[Partition, bytes]) -> dict[Partition, StorageError]:
    """Append each message to its partition, commit, and return why partitions failed."""
    for partition, message in appends:
        partition.append([message], b"\0", NOW)
    done = hand.commit()
    assert done is not None
    return dict(done.failures)
