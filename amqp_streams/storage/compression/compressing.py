"""[io] Compresses the closed segments of the logs whose settings say so, one after the other.

Laws: a segment is removed only when its compressed file was read back, has its name, and this name is on the
disk. Nothing here stops a partition or refuses an event: what fails leaves the segment as it is. The keeper's
thread does the work in small pieces, so that its other tasks wait for one piece at most, and a call of
`go_on` allows a bounded number of bytes.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from amqp_streams.errors import StorageError
from amqp_streams.log_settings import Compression
from amqp_streams.storage.commits.flushing import Outstanding, Tuning
from amqp_streams.storage.compression.writing import Limits, SegmentWriter, Verdict, Wanted
from amqp_streams.storage.disk.files import Files
from amqp_streams.storage.disk.space import FULL, Space
from amqp_streams.storage.disk.work import Call, Executor, Remove, SyncFolder, Task, Work
from amqp_streams.storage.partitions.partition_log import PartitionLog
from amqp_streams.storage.partitions.segment import Segment
from amqp_streams.storage.partitions.sources import COMPRESSED_SUFFIX
from amqp_streams.wire.batched.compression import available

_LOOKED_A_CALL: Final = 1000
"""The most partitions that one call of `go_on` looks at."""
_PAUSE_CALLS: Final = 120
"""How many calls after a lack of space the next segment is tried: about a minute."""


@dataclass(slots=True, eq=False)
class _Current:
    """The segment that is being compressed."""

    partition: PartitionLog
    segment: Segment
    writer: SegmentWriter

    @property
    def is_wanted(self) -> bool:
        """Whether to go on: the log may be deleted or changed, and retention may have dropped the segment."""
        partition = self.partition
        is_asked = partition.settings.compression != Compression.NONE
        return partition.writable and is_asked and not self.is_dropped

    @property
    def is_dropped(self) -> bool:
        """Whether retention has dropped the segment."""
        row = self.partition.segments.row
        return row[bisect_right(row, self.segment.base, key=_base) - 1] is not self.segment


class Compressing:
    """See the laws of this module.

    `partitions`: those of all logs. `allow`: called before the first compressed file gets its name; raises
    StorageError.
    """

    def __init__(
        self,
        files: Files,
        *,
        keeper: Executor,
        outstanding: Outstanding,
        space: Space,
        tuning: Tuning,
        partitions: Callable[[], Iterable[PartitionLog]],
        allow: Callable[[], None],
    ) -> None:
        self._files: Final = files
        self._keeper: Final = keeper
        self._outstanding: Final = outstanding
        self._space: Final = space
        self._tuning: Final = tuning
        self._partitions: Final = partitions
        self._allow: Final = allow
        self._turns: Iterator[PartitionLog] = iter(())
        self._current: _Current | None = None
        self._left = 0
        """Bytes that the last call of `go_on` still allows."""
        self._looks = 0
        """At how many partitions it may still look."""
        self._pause = 0
        self._busy = False
        """A task is in flight; at most one is."""
        self._stopped = False

    def go_on(self) -> None:
        """Continue. Called twice a second."""
        self._left, self._looks = self._tuning.compress_call_bytes, _LOOKED_A_CALL
        self._pause = max(0, self._pause - 1)
        self._next()

    def stop(self) -> None:
        """Begin no other piece: the store closes. What was written of a file is removed."""
        self._stopped = True
        if self._current is not None and not self._busy:
            self._give_up(self._current)

    # -- inside

    def _next(self) -> None:
        """Submit the next piece, if one is allowed now."""
        if self._busy or self._stopped or self._left <= 0:
            return
        # On a full disk, what is free is for events.
        if self._space.full or self._pause:
            if self._current is not None:
                self._give_up(self._current, pause=True)
            return
        if self._current is None:
            self._current = self._begin()
        if self._current is not None:
            self._submit(Work([Call(self._current.writer.piece)]), self._ended)

    def _submit(self, work: Work, ended: Callable[[_Current, Work], None]) -> None:
        current = self._current
        assert current is not None, "work is for a segment"
        self._busy = True
        self._outstanding.submit(self._keeper, [work], partial(self._handle, current, ended))

    def _handle(self, current: _Current, ended: Callable[[_Current, Work], None], task: Task) -> None:
        self._busy = False
        ended(current, task.works[0])
        self._next()

    def _begin(self) -> _Current | None:
        """The next segment to compress; a call of `go_on` looks at a bounded number of partitions."""
        begun = False
        while self._looks:
            partition = next(self._turns, None)
            if partition is None and begun:
                return None
            if partition is None:
                self._turns, begun = iter(self._partitions()), True
                continue
            self._looks -= 1
            found = self._of(partition)
            if found is not None:
                return found
        return None

    def _of(self, partition: PartitionLog) -> _Current | None:
        name = partition.settings.compression
        if name == Compression.NONE or not partition.writable or (codec := available(name)) is None:
            return None
        segment = partition.segments.compressible(self._tuning.compress_bytes_min)
        if segment is None:
            return None
        try:
            source = partition.segments.file(segment)
        except OSError:
            segment.unfit = True  # readers report it
            return None
        tuning = self._tuning
        writer = SegmentWriter(
            self._files,
            Wanted(segment.path, segment.base, segment.end, segment.bytes),
            source,
            codec=codec,
            seed=partition.segments.seed,
            limits=Limits(tuning.compress_piece_bytes, tuning.compress_block_bytes, tuning.reserve_bytes),
        )
        return _Current(partition, segment, writer)

    def _ended(self, current: _Current, work: Work) -> None:
        """A piece has ended."""
        writer = current.writer
        # A piece that reads nothing costs something as well.
        self._left -= max(writer.done_bytes, self._tuning.compress_piece_bytes // 16)
        if work.error is not None:
            no_space = work.error.errno in FULL
            self._give_up(current, unfit=not no_space, pause=no_space)
        elif self._stopped or not current.is_wanted:
            self._give_up(current)
        elif writer.verdict is Verdict.DONE:
            self._name(current)
        elif writer.verdict is not None:
            no_space = writer.verdict is Verdict.NO_SPACE
            self._give_up(current, unfit=not no_space, pause=no_space)

    def _name(self, current: _Current) -> None:
        """Give the compressed file its name, and wait until the name is on the disk."""
        try:
            self._allow()
        except StorageError:
            self._give_up(current, pause=True)
            return
        segment = current.segment
        path = segment.path.with_suffix(COMPRESSED_SUFFIX)
        # From here on, retention and the deletion of the segment remove both files.
        segment.other = path
        rename = partial(self._files.rename, current.writer.path, path)
        self._submit(Work([Call(rename), SyncFolder(path.parent)]), self._named)

    def _named(self, current: _Current, work: Work) -> None:
        self._current = None
        segment = current.segment
        if work.error is not None or not current.partition.writable:
            # It is not known which names the disk has: the segment stays, and the next start decides.
            segment.unfit = True
            return
        if not current.is_dropped:
            self._replace(current)

    def _replace(self, current: _Current) -> None:
        """Read the compressed file from now on, and remove the other one."""
        segment = current.segment
        old = segment.path
        current.partition.segments.replace(segment, current.writer.file_bytes)
        self._busy = True
        works = [Work([Remove(old), SyncFolder(old.parent)])]
        self._outstanding.submit(self._keeper, works, partial(self._removed, segment))

    def _removed(self, segment: Segment, task: Task) -> None:
        self._busy = False
        # Otherwise retention tries again, and the next start.
        if task.works[0].error is None:
            segment.other = None
        self._next()

    def _give_up(self, current: _Current, *, unfit: bool = False, pause: bool = False) -> None:
        """Leave the segment as it is, and remove what was written."""
        self._current = None
        current.segment.unfit = current.segment.unfit or unfit
        if pause:
            self._pause = _PAUSE_CALLS
        # Not in the folder of a deleted log: a later log of its name may have files of these names.
        if current.partition.writable:
            self._outstanding.submit(self._keeper, [Work([Remove(current.writer.path)])], _forget)


def _base(segment: Segment) -> int:
    return segment.base


def _forget(task: Task) -> None:
    """If the file could not be removed, the next start removes it."""
