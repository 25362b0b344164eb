"""Checkpoints in the background: many changes share one."""

from collections.abc import Callable
from pathlib import Path

from amqp_streams.storage import catalog
from amqp_streams.storage.catalog import Checkpoint
from amqp_streams.storage.commits.flushing import Outstanding
from amqp_streams.storage.disk.files import RealFiles, read_file
from amqp_streams.storage.disk.work import Task, run
from amqp_streams.storage.removing import Checkpoints, Removal


class Later:
    """An executor that runs its tasks when the test says so."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    def submit(self, task: Task) -> None:
        self.tasks.append(task)

    def stop(self) -> None:
        pass

    def run(self) -> None:
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            run(task, RealFiles())
            task.ended(task)


def opened(path: Path, keeper: Later, snapshot: Callable[[], Checkpoint]) -> Checkpoints:
    return Checkpoints(RealFiles(), path, keeper=keeper, outstanding=Outstanding(), snapshot=snapshot)


def test_changes_during_a_checkpoint_share_the_next_one(tmp_path: Path) -> None:
    """A checkpoint has all partitions: one for each change would let a client use up disk and CPU."""
    keeper, taken = Later(), list[int]()

    def snapshot() -> Checkpoint:
        taken.append(len(taken))
        return Checkpoint(False, len(taken), {}, {})

    checkpoints = opened(tmp_path, keeper, snapshot)
    files = [tmp_path / str(number) for number in range(100)]
    for file in files:
        file.touch()
        checkpoints.submit([Removal(0, [file])])
    assert len(keeper.tasks) == 1
    keeper.run()
    # The other files are in no checkpoint yet, so they must still exist.
    assert [file.exists() for file in files] == [False] + [True] * 99
    keeper.run()
    assert not any(file.exists() for file in files)
    assert not keeper.tasks
    assert len(taken) == 2
    content = catalog.unseal(read_file(RealFiles(), tmp_path / catalog.CHECKPOINT_FILE))
    assert content is not None
    assert int(content["id"], 16) == 2
    checkpoints.submit()
    assert len(keeper.tasks) == 1


def test_deleted_logs_share_a_checkpoint_and_a_folder_that_cannot_be_removed_costs_only_itself(
    tmp_path: Path,
) -> None:
    keeper = Later()
    checkpoints = opened(tmp_path, keeper, lambda: Checkpoint(False, 1, {}, {}))
    checkpoints.submit()
    folders = [tmp_path / str(number) for number in range(10)]
    for folder in folders:
        (folder / "0").mkdir(parents=True)
        checkpoints.submit(trash=[folder])
    folders[3].joinpath("0").rmdir()
    folders[3].rmdir()
    folders[3].touch()
    keeper.run()
    assert all(folder.exists() for folder in folders), "no checkpoint without them was written yet"
    assert len(keeper.tasks) == 1
    keeper.run()
    assert [folder for folder in folders if folder.exists()] == [folders[3]]
    assert not keeper.tasks


def test_folders_of_deleted_logs_are_removed_after_the_next_checkpoint_if_one_fails(tmp_path: Path) -> None:
    keeper, folder = Later(), tmp_path / "trash"
    folder.mkdir()
    checkpoints = opened(tmp_path, keeper, lambda: Checkpoint(False, 1, {}, {}))
    obstacle = tmp_path / catalog.CHECKPOINT_FILE
    obstacle.mkdir()
    checkpoints.submit(trash=[folder])
    keeper.run()
    assert folder.exists(), "the last checkpoint may have the log"
    assert not keeper.tasks, "a disk that fails is not asked again and again"
    obstacle.rmdir()
    checkpoints.submit()
    keeper.run()
    assert not folder.exists()


def test_removals_that_wait_are_begun_at_once_if_their_space_is_needed(tmp_path: Path) -> None:
    keeper, folder = Later(), tmp_path / "trash"
    folder.mkdir()
    checkpoints = opened(tmp_path, keeper, lambda: Checkpoint(False, 1, {}, {}))
    assert not checkpoints.hurry(), "there is nothing to wait for"
    checkpoints.submit()
    assert checkpoints.hurry()
    assert len(keeper.tasks) == 1
    checkpoints.submit(trash=[folder])
    assert checkpoints.hurry()
    assert len(keeper.tasks) == 2
    keeper.run()
    assert not folder.exists()
    assert not keeper.tasks
    assert not checkpoints.hurry()
