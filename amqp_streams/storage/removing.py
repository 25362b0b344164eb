"""[io] Removes deleted logs and what retention dropped. After a kill at any moment, nothing seems lost.

The checkpoint has the logs, and the start of each partition. Laws: before a segment disappears, something on
the disk says that the partition starts behind it. As long as a checkpoint has a deleted log, its folder in
the trash says that it was deleted.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from amqp_streams.storage.catalog import Checkpoint, remove_content, remove_tree, write_checkpoint
from amqp_streams.storage.commits.flushing import Outstanding
from amqp_streams.storage.disk.files import Files, OpenFile
from amqp_streams.storage.disk.work import Call, Executor, Task, Work
from amqp_streams.storage.partitions.segment import segment_path

START_SUFFIX: Final = ".start"
"""Of an empty file whose name has the start of its partition. The next start of the node removes the file."""


class Removal(NamedTuple):
    """Segments of one partition and their indexes, the segments first. Its records begin at `start` now."""

    start: int
    files: Sequence[Path]


class Checkpoints:
    """Checkpoints that the keeper writes in the background, at most one at a time, except after `hurry`.

    A checkpoint has every partition of the store, so its cost grows with their number. Changes during a
    checkpoint share the next one. `snapshot`: called on the loop's thread.
    """

    def __init__(
        self,
        files: Files,
        root: Path,
        *,
        keeper: Executor,
        outstanding: Outstanding,
        snapshot: Callable[[], Checkpoint],
    ) -> None:
        self._files: Final = files
        self._root: Final = root
        self._keeper: Final = keeper
        self._outstanding: Final = outstanding
        self._snapshot: Final = snapshot
        self._running = 0
        self._due = False
        self._gone: list[Removal] = []
        """What retention dropped since the last checkpoint was begun."""
        self._trash: list[Path] = []
        """The folders of logs that were deleted since the last checkpoint was begun."""

    def submit(self, gone: Sequence[Removal] = (), trash: Sequence[Path] = ()) -> None:
        """Write a checkpoint of this moment or of a later one, then remove the files of `gone` and the
        folders `trash`.
        """
        self._gone += gone
        self._trash += trash
        self._due = True
        if not self._running:
            self._begin()

    def hurry(self) -> bool:
        """Submit all removals now. Returns whether the keeper has any: after its tasks, they are done."""
        if self._trash or self._gone:
            self._begin()
        return self._running > 0

    def forget(self, folder: Path) -> None:
        """Do not remove files below `folder`: its log was deleted, and a later log of its name has files of
        the same names.
        """
        self._gone = [each for each in self._gone if folder not in each.files[0].parents]

    def _begin(self) -> None:
        self._running, self._due = self._running + 1, False
        gone, self._gone = self._gone, []
        trash, self._trash = self._trash, []
        remove = partial(checkpoint_and_remove, self._files, self._root, self._snapshot(), gone, trash)
        self._outstanding.submit(self._keeper, [Work([Call(remove)])], partial(self._ended, trash))

    def _ended(self, trash: Sequence[Path], task: Task) -> None:
        # If a file could not be removed, the next opening finds and removes it.
        self._running -= 1
        if task.works[0].error is not None:
            # One checkpoint may have been for many logs, and the next one may succeed. Not `gone`: a later
            # log may have files of these names.
            self._trash += trash
        if self._due and not self._running:
            self._begin()


def checkpoint_and_remove(
    files: Files,
    root: Path,
    checkpoint: Checkpoint,
    removals: Sequence[Removal],
    trash: Sequence[Path] = (),
) -> None:
    """Write a checkpoint, then remove the files that the checkpoint no longer mentions.

    A full disk has no space for the checkpoint. Then the files are removed first, because this makes the
    space. The folders in `trash` stay without content, and of each partition's segments one becomes the note
    of its start: a rename needs no space.

    Raises OSError: the disk failed.
    """

    def make_space() -> None:
        for folder in trash:
            with contextlib.suppress(OSError):
                remove_content(files, folder)
        for removal in removals:
            _note_start(files, removal)
        _remove(files, removals)

    write_checkpoint(files, root, checkpoint, make_space=make_space)
    for folder in trash:
        # A folder that cannot be removed costs only its space: the next opening removes it.
        with contextlib.suppress(OSError):
            remove_tree(files, folder)
    _remove(files, removals)


def _note_start(files: Files, removal: Removal) -> None:
    segment = removal.files[0]
    note = segment_path(segment.parent, removal.start).with_suffix(START_SUFFIX)
    # Retention removes whole segments, so a segment whose file was never written may be among them.
    with contextlib.suppress(FileNotFoundError):
        files.rename(segment, note)
        files.fsync_dir(segment.parent)
        OpenFile(files, note, write=True).truncate(0)


def _remove(files: Files, removals: Sequence[Removal]) -> None:
    for removal in removals:
        for one in removal.files:
            with contextlib.suppress(FileNotFoundError):
                files.unlink(one)
