"""Reads of data that is not in the system's cache: they answer later, with the same records and errors."""

from collections.abc import Callable
from dataclasses import replace
from errno import EIO
from pathlib import Path
from typing import TypeVar

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import CorruptionError, StorageError
from amqp_streams.storage.ports import LATER, Chunk, Later, Partition, ReadRequest
from amqp_streams.testing import FaultyFiles
from tests.amqp_streams.storage.conftest import NOW, SMALL, Hand, open_inline, open_real

T = TypeVar("T")
MESSAGES = [b"%d" % number * 100 for number in range(400)]


def filled(hand: Hand) -> Partition:
    """A partition of several segments, opened again so that nothing is in memory."""
    settings = LogSettings(segment_bytes=64 << 10)
    partition = hand.store.create("log", settings, incarnation="i").partitions[0]
    for first in range(0, len(MESSAGES), 5):
        hand.write(partition, *MESSAGES[first : first + 5], now_ms=NOW + first)
    hand.store.close()
    return partition


def reopened(files: FaultyFiles) -> tuple[Hand, Partition]:
    filled(open_inline(files))
    hand = open_inline(files)
    files.cold = lambda: True
    return hand, hand.store.logs["log"].partitions[0]


def read_later(hand: Hand, partition: Partition, at: int) -> tuple[Chunk | None, int]:
    """The records at a position, and how often the answer came later."""
    return later(hand, lambda request: partition.read(at, 2000, request))


def sought_later(hand: Hand, partition: Partition, after_ms: int) -> tuple[int, int]:
    """The number of the first record after a time, and how often the answer came later."""
    return later(hand, lambda request: partition.seek_timestamp(after_ms, request))


def later(hand: Hand, ask: Callable[[ReadRequest], T | Later]) -> tuple[T, int]:
    ready: list[None] = []
    request, waits = ReadRequest("one", lambda: ready.append(None)), 0
    while (chunk := ask(request)) is LATER:
        waits += 1
        assert ask(request) is LATER, "asking again changes nothing"
        count = len(ready)
        hand.loop.run_until(lambda count=count: len(ready) > count)  # type: ignore[misc]  # a default of a lambda
    assert len(ready) == waits
    assert request.pending is None
    return chunk, waits


def test_cold_records_come_later_and_are_the_same() -> None:
    hand, partition = reopened(FaultyFiles())
    at = waits = 0
    while at < partition.end:
        chunk, waited = read_later(hand, partition, at)
        assert chunk is not None
        assert list(chunk.messages) == MESSAGES[at : at + len(chunk)]
        at, waits = at + len(chunk), waits + waited
    assert waits > len(partition.segments.row), "stretches and indexes"  # type: ignore[attr-defined]  # a PartitionLog
    hand.store.close()


def test_a_lookup_of_a_time_comes_later_and_finds_the_same() -> None:
    files = FaultyFiles()
    hand, partition = reopened(files)
    waited = 0
    for after_ms in range(NOW - 1, NOW + len(MESSAGES) + 1, 7):
        hand.store.close()
        hand = open_inline(files)
        partition = hand.store.logs["log"].partitions[0]
        found, waits = sought_later(hand, partition, after_ms)
        assert found == partition.seek_timestamp(after_ms)
        waited += waits
    assert waited > 20, "most times are neither before nor after a segment"
    hand.store.close()


def test_a_lookup_in_a_missing_file_is_reported_as_damage() -> None:
    files = FaultyFiles()
    hand, partition = reopened(files)
    (first, *_) = sorted(path for path in files.paths() if path.suffix == ".log")
    files.unlink(first)
    files.unlink(first.with_suffix(".idx"))
    with pytest.raises(CorruptionError) as later:
        sought_later(hand, partition, NOW)
    with pytest.raises(CorruptionError) as at_once:
        partition.seek_timestamp(NOW)
    assert (str(later.value), later.value.first) == (str(at_once.value), at_once.value.first)
    hand.store.close()


def test_what_is_cached_or_asked_without_a_request_is_read_at_once() -> None:
    files = FaultyFiles()
    hand, partition = reopened(files)
    assert partition.read(0, 100) is not None
    files.cold = lambda: False
    _, waits = read_later(hand, partition, 399)
    assert waits <= 1, "at most the index"
    hand.store.close()


def test_a_reader_gets_on_when_the_cache_holds_only_one_thing() -> None:
    """The index of a segment and its records drive each other out of the cache."""
    files = FaultyFiles()
    filled(open_inline(files))
    hand = open_inline(files, tuning=replace(SMALL, cache_bytes=1))
    files.cold = lambda: True
    partition, at = hand.store.logs["log"].partitions[0], 0
    while at < partition.end:
        chunk, waits = read_later(hand, partition, at)
        assert chunk is not None
        assert waits <= 2, "the index and the records"
        at += len(chunk)
    hand.store.close()


def test_a_reader_at_the_end_gets_on_while_records_are_written() -> None:
    """The stretch that it waited for has become longer."""
    files = FaultyFiles()
    hand, partition = reopened(files)
    ready: list[None] = []
    request = ReadRequest("one", lambda: ready.append(None))
    while partition.read(399, 100, request) is LATER:
        assert len(ready) < 3
        for number in range(20):
            hand.write(partition, b"%d" % number * 400, now_ms=NOW + 1000)
        hand.loop.run_until(lambda: bool(ready))
    hand.store.close()


def test_what_two_readers_wait_for_counts_once_in_the_cache() -> None:
    hand, partition = reopened(FaultyFiles())
    requests = [ReadRequest(owner, lambda: None) for owner in ("one", "two")]
    while LATER in [partition.read(0, 100, request) for request in requests]:
        hand.loop.run_ready()
    together = hand.store.facts().uses["storage_cache_bytes"].used
    hand.store.close()
    hand, partition = reopened(FaultyFiles())
    read_later(hand, partition, 0)
    assert hand.store.facts().uses["storage_cache_bytes"].used == together
    hand.store.close()


def test_a_failed_read_is_reported_like_a_read_that_waits() -> None:
    files = FaultyFiles()
    hand, partition = reopened(files)
    files.fault = lambda operation, path: EIO if operation == "pread" and path.suffix == ".log" else 0
    with pytest.raises(StorageError) as later:
        read_later(hand, partition, 0)
    with pytest.raises(StorageError) as at_once:
        partition.read(0, 100)
    assert str(later.value) == str(at_once.value)
    files.fault = lambda operation, path: 0
    chunk, _ = read_later(hand, partition, 0)
    assert chunk is not None, "an error is reported once"
    hand.store.close()


@pytest.mark.parametrize("remove", [True, False])
def test_damage_is_reported_like_a_read_that_waits(remove: bool) -> None:
    files = FaultyFiles()
    hand, partition = reopened(files)
    (first, *_) = sorted(path for path in files.paths() if path.suffix == ".log")
    if remove:
        files.unlink(first)
        files.unlink(first.with_suffix(".idx"))
    else:
        files.damage(first, lambda data: data.__delitem__(slice(30, None)))
    with pytest.raises(CorruptionError) as later:
        read_later(hand, partition, 0)
    with pytest.raises(CorruptionError) as at_once:
        partition.read(0, 100)
    assert (str(later.value), later.value.first) == (str(at_once.value), at_once.value.first)
    hand.store.close()


def test_a_reader_that_gives_up_is_not_called() -> None:
    hand, partition = reopened(FaultyFiles())
    ready: list[None] = []
    request = ReadRequest("one", lambda: ready.append(None))
    assert partition.read(0, 100, request) is LATER
    request.cancel()
    hand.loop.run_ready()
    assert not ready
    hand.store.close()


def test_threads_read_while_the_store_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(open_real(tmp_path))
    hand = open_real(tmp_path)
    monkeypatch.setattr("amqp_streams.storage.disk.files.RealFiles.is_cached", lambda *_: False)
    partition = hand.store.logs["log"].partitions[0]
    chunk, waits = read_later(hand, partition, 0)
    assert chunk is not None
    assert waits > 0
    assert partition.read(399, 100, ReadRequest("two", lambda: None)) is LATER
    hand.store.close()
    hand.loop.run_ready()


def test_the_system_is_asked_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it does not tell, only the active segment counts as cached."""
    filled(open_real(tmp_path))
    hand = open_real(tmp_path)
    monkeypatch.setattr("amqp_streams.storage.disk.files.RealFiles.is_cached", lambda *_: None)
    partition = hand.store.logs["log"].partitions[0]
    _, waits = read_later(hand, partition, 399)
    assert waits == 0
    _, waits = read_later(hand, partition, 0)
    assert waits == 2
    hand.store.close()
