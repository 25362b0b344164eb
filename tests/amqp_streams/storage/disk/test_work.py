"""Steps succeed or fail together. A failed write leaves the file unchanged. Results are handled once."""

import errno
from pathlib import Path

import pytest

from amqp_streams.storage.disk.files import OpenFile, RealFiles, read_file, replace_file
from amqp_streams.storage.disk.work import (
    Call,
    InlineExecutor,
    Results,
    SyncFile,
    SyncFolder,
    Task,
    ThreadExecutor,
    Work,
    Write,
)
from amqp_streams.testing import FaultyFiles, ManualLoop

FOLDER = Path("/d")


@pytest.fixture
def files() -> FaultyFiles:
    """Files with one folder."""
    files = FaultyFiles()
    files.mkdir(FOLDER)
    files.fsync_dir(FOLDER.parent)
    return files


def test_a_failed_step_ends_the_work_and_takes_its_writes_back(files: FaultyFiles) -> None:
    file, new = OpenFile(files, FOLDER / "a", create=True), OpenFile(files, FOLDER / "b", create=True)
    file.write([b"before"], 0)
    files.fault = lambda operation, path: errno.ENOSPC if operation == "pwritev" and path.name == "b" else 0
    work = Work(
        [
            Write(file, [b"x"], 6, 6),
            Write(file, [b"y"], 7, 6),
            Write(new, [b"z"], 0, 0, created=True),
            SyncFolder(FOLDER),
        ]
    )
    work.run(files)
    assert work.error is not None
    assert (work.error.errno, work.undone) == (errno.ENOSPC, True)
    assert bytes(files.content(FOLDER / "a")) == b"before"
    assert files.listdir(FOLDER) == ["a"]


def test_a_failed_sync_is_not_taken_back(files: FaultyFiles) -> None:
    file = OpenFile(files, FOLDER / "a", create=True)
    files.fault = lambda operation, path: errno.EIO if operation == "fdatasync" else 0
    work = Work([Write(file, [b"x"], 0, 0), SyncFile(file)])
    work.run(files)
    assert isinstance(work.failed, SyncFile)
    assert not work.undone


def test_short_writes_are_completed(files: FaultyFiles) -> None:
    file = OpenFile(files, FOLDER / "a", create=True)
    files.fault = lambda operation, path: -1 if operation == "pwritev" else 0
    parts = [b"%d" % number for number in range(3000)]
    file.write(parts, 0)
    assert bytes(files.content(FOLDER / "a")) == b"".join(parts)


def test_a_small_file_is_replaced_whole_or_not_at_all(files: FaultyFiles) -> None:
    path = FOLDER / "small"
    replace_file(files, path, b"old", sync=True)
    for operation in ("open", "pwritev", "fdatasync", "rename"):
        files.fault = lambda asked, path, operation=operation: errno.EIO if asked == operation else 0  # type: ignore[misc]
        with pytest.raises(OSError, match="Input/output"):
            replace_file(files, path, b"new!", sync=True)
        files.fault = lambda operation, path: 0
        assert read_file(files, path) == b"old"
    replace_file(files, path, b"new!", sync=True)
    files.power_loss()
    assert read_file(files, path) == b"new!"


def test_results_are_handled_once_by_the_loop_or_by_the_waiting_caller(files: FaultyFiles) -> None:
    loop, ended = ManualLoop(), list[int]()
    executor = InlineExecutor(files, results := Results(loop.call))
    for number in range(3):
        executor.submit(Task([Work([])], lambda task, number=number: ended.append(number)))  # type: ignore[misc]
    results.wait()
    assert ended == [0]
    loop.run_ready()
    assert ended == [0, 1, 2]


def test_a_thread_does_its_tasks_in_order_and_stops_on_request() -> None:
    loop, order = ManualLoop(), list[int]()
    executor = ThreadExecutor("test", RealFiles(), Results(loop.call))
    for number in range(50):
        executor.submit(Task([Work([Call(lambda number=number: order.append(number))])], lambda task: None))  # type: ignore[misc]
    executor.stop()
    assert order == list(range(50))


def test_a_closed_loop_does_not_stop_the_thread() -> None:
    def closed(*arguments: object) -> None:
        raise RuntimeError("Event loop is closed")

    results, ended = Results(closed), list[Task]()
    executor = ThreadExecutor("test", RealFiles(), results)
    executor.submit(Task([Work([])], ended.append))
    executor.submit(Task([Work([])], ended.append))
    executor.stop()
    results.handle()
    assert len(ended) == 2
