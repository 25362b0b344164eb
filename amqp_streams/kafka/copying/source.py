"""[io] The records of a log in a data directory that no node uses, as the records that Kafka gets."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from amqp_streams.errors import CorruptionError
from amqp_streams.kafka.records import amqp
from amqp_streams.storage import inspect
from amqp_streams.storage.ports import Chunk


class Piece(NamedTuple):
    """Records that follow each other: `first` is the number of the first one. Maybe none."""

    first: int
    times_ms: Sequence[int]
    values: Sequence[bytes]
    messages: Sequence[bytes]


class Source:
    """A log in a data directory.

    With `skip_damaged`, damaged records are skipped and described in `damaged`; without, they end a walk with
    CorruptionError.
    """

    def __init__(self, directory: Path, log: str, *, skip_damaged: bool = False) -> None:
        """Look at the log.

        Raises:
            DirectoryLockedError: a node uses the directory.
            KeyError: the log does not exist.
            StorageError: the path is not a data directory, or cannot be read.
        """
        self.record: Final = inspect.log_record(directory, log)
        self.damaged: Final[dict[str, None]] = {}
        """Each once, in order: a partition is walked more than once."""
        self._directory: Final = directory
        self._log: Final = log
        self._skip_damaged: Final = skip_damaged

    def states(self) -> dict[str, bytes]:
        """The stored states by key: cursors, epochs."""
        return inspect.dump_states(self._directory)

    def chunks(self, partition: int, start: int) -> Iterator[Chunk]:
        """The records of a partition from number `start` on. Raises like `inspect.chunks`."""
        at: int | None = start
        while at is not None:
            found, at = inspect.chunks(self._directory, self._log, partition, start=at), None
            try:
                yield from found
            except CorruptionError as error:
                if not self._skip_damaged:
                    raise
                self.damaged[f"partition {partition}: {error}"] = None
                # None: no later record of the partition is readable.
                at = error.after


class Walk:
    """Takes the records of a partition in pieces of any size, from number `start` on."""

    def __init__(self, source: Source, partition: int, start: int = 0) -> None:
        self._chunks: Final = source.chunks(partition, start)
        self._chunk: Chunk | None = None
        self._values: Sequence[bytes] = ()
        self._at = 0
        self._next_chunk()

    @property
    def number(self) -> int | None:
        """The number of the next record; None at the end."""
        return None if self._chunk is None else self._chunk.base + self._at

    def take(self, count_max: int) -> Piece:
        """At least one record, unless the walk is at its end, and at most `count_max`."""
        chunk, first = self._chunk, self._at
        if chunk is None:
            return Piece(0, (), (), ())
        last = min(len(chunk), first + count_max)
        piece = Piece(
            chunk.base + first,
            chunk.timestamps[first:last],
            self._values[first:last],
            chunk.messages[first:last],
        )
        self._at = last
        if last == len(chunk):
            self._next_chunk()
        return piece

    def _next_chunk(self) -> None:
        self._chunk, self._at = next(self._chunks, None), 0
        chunk = self._chunk
        if chunk is not None:
            assert chunk.offsets is None, "a data directory has no gaps in a chunk"
            self._values = amqp.values(chunk.messages, chunk.header_sizes, chunk.formats)
