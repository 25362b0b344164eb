"""The manifest of a backup: what it has of each log, in which files. Pure.

Law: a backup exists when its manifest does. The manifest is JSON with the CRC of its content, as the small
files of a data directory (`catalog.seal`). It names each file that the backup needs, how many bytes of it,
and their CRC-32.

A file of a segment may be longer than a backup says: a later backup appended to it. The files::

    backups/NAME/manifest.json
    backups/NAME/states           the states, as the file `states` of a data directory
    backups/NAME/journal          batches that only the journal had, one partition after the other
    segments/UID/P/BASE-V.log     the first bytes of a segment, as the node wrote them; V: see `Piece.version`
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from amqp_streams.log_settings import LOG_NAME
from amqp_streams.storage.formats.producers import Table
from amqp_streams.storage.ports import Reached

VERSION: Final = 1
"""Of manifests, and of the folder that has them. A program reads only the versions that it knows."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_HEX: Final = re.compile(r"[0-9a-f]{16}")

Key = tuple[int, int]
"""The uid of a log, and a partition."""


class Small(NamedTuple):
    """A file of one backup: all its bytes."""

    bytes: int
    crc: int


class Piece(NamedTuple):
    """The first `bytes` bytes of a segment in a backup folder: whole batches, with the records to `end`.

    `version`: 1, and one more each time when the node's segment does not begin with what the folder has:
    the node was restored to an earlier time, or its files were repaired. `last_ms`: the last timestamp.
    `lost`: how many records between `base` and `end` are damaged. `stamp`: `Files.stamp` of the node's file,
    and its size.
    """

    base: int
    version: int
    bytes: int
    crc: int
    end: int
    last_ms: int
    lost: int = 0
    stamp: tuple[int, int, int] = (0, 0, 0)


class Tail(NamedTuple):
    """Where the file `journal` of a backup has the batches of a partition."""

    position: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CopiedPartition:
    """The records `start` to before `end`: those of `pieces`, and after them those of `tail`.

    `reached`: the numbers below it were assigned. It is more than `end` only if the data directory is
    damaged. `producers`: the table at the end of the last piece.
    """

    start: int
    end: int
    reached: int
    pieces: tuple[Piece, ...]
    tail: Tail
    producers: Table


@dataclass(frozen=True, slots=True)
class CopiedLog:
    """`record`: the content of the log's `log.json`."""

    record: Mapping[str, Any]
    partitions: tuple[CopiedPartition, ...]

    @property
    def name(self) -> str:
        """The name of the log."""
        return str(self.record["name"])

    @property
    def uid(self) -> int:
        """The random number of the log."""
        return int(self.record["uid"], 16)

    @property
    def incarnation(self) -> str:
        """The incarnation of the log."""
        return str(self.record["incarnation"])


@dataclass(frozen=True, slots=True)
class Manifest:
    """A backup. `automatic`: its name is the time, so that `--keep` may remove it.

    `began_ms`: each event that was accepted before this time is in the backup, unless retention removed it
    during the backup. `damage`: what the data directory had lost before the backup, for people.
    """

    name: str
    automatic: bool
    directory_id: int
    format_number: int
    program: str
    began_ms: int
    ended_ms: int
    logs: tuple[CopiedLog, ...]
    states: Small
    journal: Small
    damage: tuple[str, ...] = ()

    @property
    def events(self) -> int:
        """How many events it has."""
        return sum(part.end - part.start for log in self.logs for part in log.partitions)

    @property
    def bytes(self) -> int:
        """The bytes of everything that it needs."""
        pieces = sum(piece.bytes for _, piece in self.pieces())
        return pieces + self.states.bytes + self.journal.bytes

    def pieces(self) -> Iterable[tuple[Key, Piece]]:
        """All segments, with their partitions."""
        for log in self.logs:
            for index, part in enumerate(log.partitions):
                for piece in part.pieces:
                    yield (log.uid, index), piece

    def as_json(self) -> dict[str, Any]:
        """The content of the file."""
        return {
            "backup": VERSION,
            "name": self.name,
            "automatic": self.automatic,
            "directory": f"{self.directory_id:016x}",
            "format": self.format_number,
            "program": self.program,
            "began_ms": self.began_ms,
            "ended_ms": self.ended_ms,
            "states": list(self.states),
            "journal": list(self.journal),
            "damage": list(self.damage),
            "logs": [
                {"log": dict(log.record), "partitions": [_partition_json(part) for part in log.partitions]}
                for log in self.logs
            ],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Manifest":
        """Raises ValueError, KeyError or TypeError if the content is not a manifest of this version."""
        if content["backup"] != VERSION:
            message = f"version {content['backup']!r}"
            raise ValueError(message)
        if not NAME.fullmatch(content["name"]):
            message = f"name {content['name']!r}"
            raise ValueError(message)
        return cls(
            content["name"],
            bool(content["automatic"]),
            number_of(content["directory"]),
            int(content["format"]),
            str(content["program"]),
            int(content["began_ms"]),
            int(content["ended_ms"]),
            tuple(
                CopiedLog(_record(log["log"]), tuple(_partition(part) for part in log["partitions"]))
                for log in content["logs"]
            ),
            Small(*_counts(content["states"])),
            Small(*_counts(content["journal"])),
            tuple(map(str, content["damage"])),
        )


def number_of(text: str) -> int:
    """The number of 16 hexadecimal digits.

    Raises ValueError or TypeError: the text is another one.
    """
    if not _HEX.fullmatch(text):
        message = f"{text!r} is not a number of 16 hexadecimal digits"
        raise ValueError(message)
    return int(text, 16)


def _counts(values: Iterable[object]) -> Iterator[int]:
    """The values, which are integers from 0 on: they become parts of the names of files, and lengths."""
    for value in values:
        if type(value) is not int or not 0 <= value < 1 << 64:
            message = f"{value!r} is not a count"
            raise ValueError(message)
        yield value


def _record(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The content of a `log.json`, whose name and uid become names of files."""
    number_of(content["uid"])
    if not LOG_NAME.fullmatch(content["name"]) or not isinstance(content["incarnation"], str):
        raise ValueError(content["name"])
    return content


def _partition_json(part: CopiedPartition) -> dict[str, Any]:
    # The order of the producers counts, so their table is a list.
    rows = [[name, reached.sequence, reached.at_ms] for name, reached in part.producers.items()]
    return {
        "start": part.start,
        "end": part.end,
        "reached": part.reached,
        "segments": [[*piece[:-1], *piece.stamp] for piece in part.pieces],
        "tail": list(part.tail),
        "producers": rows,
    }


def _partition(content: Mapping[str, Any]) -> CopiedPartition:
    pieces = tuple(_piece(row) for row in content["segments"])
    table = {
        str(name): Reached(*_counts([sequence, at_ms])) for name, sequence, at_ms in content["producers"]
    }
    start, end, reached = _counts([content["start"], content["end"], content["reached"]])
    return CopiedPartition(start, end, reached, pieces, Tail(*_counts(content["tail"])), table)


def _piece(row: Sequence[int]) -> Piece:
    *values, number, written, size = row
    base, version, bytes_, crc, end, last_ms, lost = _counts(values)
    return Piece(base, version, bytes_, crc, end, last_ms, lost, (number, written, size))
