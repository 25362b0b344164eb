"""Reads in threads: turns, bounds, and what happens to reads that are given up."""

import gc
import weakref
from collections.abc import Callable
from errno import EIO
from pathlib import Path
from typing import cast

import pytest

from amqp_streams.storage.disk.files import Files
from amqp_streams.storage.disk.work import Executor, Task, run
from amqp_streams.storage.partitions.fetching import BYTES_MAX, READS_MAX, Fetch, Fetching
from amqp_streams.storage.ports import ReadRequest


class Threads:
    """Threads whose tasks end when the test says so."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.started = 0
        self.stopped = 0
        self.read: list[str] = []
        self.kept: list[str] = []
        self.ready: list[str] = []
        self.fetching = Fetching(self.start)

    def start(self, number: int) -> Executor:
        assert number == self.started
        self.started += 1
        return self

    def submit(self, task: Task) -> None:
        self.tasks.append(task)

    def stop(self) -> None:
        self.stopped += 1

    def begin(self, name: str, owner: str = "one", size: int = 10) -> ReadRequest:
        def load() -> str:
            self.read.append(name)
            if name.startswith("broken"):
                raise OSError(EIO, "no")
            return name

        request = ReadRequest(owner, lambda: self.ready.append(name))
        self.fetching.begin(Fetch(request, Path(name), size, load, self.kept.append))
        return request

    def end(self) -> None:
        """The read that began first ends."""
        task = self.tasks.pop(0)
        run(task, cast("Files", None))
        task.ended(task)


def test_a_read_is_kept_and_then_its_reader_continues() -> None:
    threads = Threads()
    assert (threads.started, threads.fetching.uses()["storage_reads"].used) == (0, 0)
    request = threads.begin("a")
    assert (threads.started, threads.ready) == (READS_MAX, [])
    assert threads.fetching.uses()["storage_read_bytes"].used == 10
    threads.end()
    assert (threads.kept, threads.ready) == (["a"], ["a"])
    assert isinstance(request.pending, Fetch)
    assert request.pending.ended
    assert threads.fetching.uses()["storage_read_bytes"].used == 0


def test_owners_take_turns_however_many_reads_one_has() -> None:
    threads = Threads()
    for number in range(20):
        threads.begin(f"many {number}", "many")
    threads.begin("few", "few")
    for _ in range(21):
        threads.end()
    assert threads.read.index("few") == READS_MAX + 1, "after one more of the other owner"
    assert [name for name in threads.read if name != "few"] == [f"many {number}" for number in range(20)]


def test_reads_in_flight_are_bounded_in_number_and_bytes() -> None:
    threads = Threads()
    for number in range(READS_MAX + 2):
        threads.begin(str(number))
    assert len(threads.tasks) == READS_MAX
    large = Threads()
    large.begin("larger than the bound", size=BYTES_MAX + 1)
    large.begin("small")
    assert len(large.tasks) == 1
    large.end()
    assert len(large.tasks) == 1


def test_a_read_that_was_given_up_does_not_begin_and_calls_no_one() -> None:
    threads = Threads()
    requests = [threads.begin(str(number)) for number in range(READS_MAX + 3)]
    for request in (requests[0], requests[READS_MAX], requests[READS_MAX + 1]):
        request.cancel()
    assert requests[0].pending is None
    while threads.tasks:
        threads.end()
    kept = [str(number) for number in range(READS_MAX)] + [str(READS_MAX + 2)]
    assert (threads.read, threads.kept, threads.ready) == (kept, kept, kept[1:])


def test_reads_that_are_given_up_leave_nothing_behind() -> None:
    """A client that attaches and detaches while the disk hangs must not fill the memory."""
    threads = Threads()
    for number in range(READS_MAX):
        threads.begin(str(number))
    given_up = weakref.WeakSet[Callable[[], None]]()
    for number in range(50):
        request = threads.begin("given up", owner=f"connection {number}")
        given_up.add(request.ready)
        request.cancel()
    del request
    gc.collect()
    assert not given_up


def test_a_new_read_of_a_reader_replaces_the_last_one() -> None:
    threads = Threads()
    request = threads.begin("a")
    threads.fetching.begin(Fetch(request, Path("b"), 1, lambda: "b", threads.kept.append))
    threads.end()
    assert threads.ready == []
    threads.end()
    assert threads.ready == ["a"], "the request is called once"


def test_a_failed_read_keeps_nothing_and_calls_its_reader() -> None:
    threads = Threads()
    request = threads.begin("broken")
    threads.begin("fine")
    threads.end()
    threads.end()
    assert (threads.kept, threads.ready) == (["fine"], ["broken", "fine"])
    assert isinstance(request.pending, Fetch)
    with pytest.raises(OSError, match="no"):
        raise request.pending.error or AssertionError


def test_after_the_stop_no_read_begins() -> None:
    threads = Threads()
    for number in range(READS_MAX + 1):
        threads.begin(str(number))
    threads.fetching.stop()
    assert threads.stopped == READS_MAX
    threads.end()
    assert len(threads.tasks) == READS_MAX - 1
