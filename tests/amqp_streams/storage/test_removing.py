"""Checkpoints in the background: many changes share one."""

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
            assert task.works[0].error is None
            task.ended(task)


def test_changes_during_a_checkpoint_share_the_next_one(tmp_path: Path) -> None:
    """A checkpoint has all partitions: one for each change would let a client use up disk and CPU."""
    keeper, taken = Later(), list[int]()

    def snapshot() -> Checkpoint:
        taken.append(len(taken))
        return Checkpoint(False, len(taken), {}, {})

    checkpoints = Checkpoints(
        RealFiles(), tmp_path, keeper=keeper, outstanding=Outstanding(), snapshot=snapshot
    )
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
