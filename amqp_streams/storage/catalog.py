"""[io] The data directory's small files: format, lock, checkpoint, and one `log.json` per log.

Law: each is replaced as a whole and carries the CRC of its content; a flipped bit is noticed, not believed. What `log.json` says
stands in the checkpoint as well, so that losing one of the two loses nothing.
"""

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from pydantic import ValidationError

from amqp_streams.config import LogSettings
from amqp_streams.errors import DirectoryLockedError, StorageError
from amqp_streams.log_settings import BY_FIELD, LOG_NAME
from amqp_streams.storage.disk.files import Files, read_file, replace_file
from amqp_streams.storage.disk.space import FULL
from amqp_streams.storage.findings import Finding, Severity
from amqp_streams.storage.formats import record

FORMAT: Final = 1
FORMAT_NUMBERED: Final = 2
"""The same with batches and indexes that say how far producers have come; given by the first producer that numbers its events."""
FORMAT_FORMATS: Final = 3
"""The same as 2 with batches that say the message-formats of their records; given by the first message whose format is not 0."""
FORMAT_FILE: Final = "format.json"
LOCK_FILE: Final = "lock"
CHECKPOINT_FILE: Final = "checkpoint.json"
LOG_FILE: Final = "log.json"
_AGAIN: Final = "opening the store writes it again from the checkpoint"


def _bounded(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as earlier programs may have stored them, without an upper bound: brought within the bounds of this one."""
    return {
        name: min(value, BY_FIELD[name].most) if name in BY_FIELD and isinstance(value, int) else value for name, value in settings.items()
    }


@dataclass(frozen=True, slots=True)
class LogRecord:
    """What a log is. `uid` is its random number in journal and CRCs."""

    name: str
    uid: int
    incarnation: str
    settings: LogSettings

    def seed(self, partition: int) -> int:
        """What the CRCs of one of its partitions begin with."""
        return record.seed_of(self.uid, partition)

    def as_json(self) -> dict[str, Any]:
        """For the files."""
        settings = self.settings.model_dump(mode="json")
        return {"name": self.name, "uid": f"{self.uid:016x}", "incarnation": self.incarnation, "settings": settings}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "LogRecord":
        """Raises ValueError, KeyError or TypeError if it is no such thing."""
        if not LOG_NAME.fullmatch(value["name"]):
            raise ValueError(value["name"])
        return cls(value["name"], int(value["uid"], 16), value["incarnation"], LogSettings.model_validate(_bounded(value["settings"])))


@dataclass(frozen=True, slots=True)
class Format:
    """What `format.json` says: the data directory's random id, and its format, which is what may be in its files."""

    directory_id: int
    number: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was known at a moment: the logs, and of each partition (start, end). `clean`: the store was closed in order.

    `states`: bytes of the file of states; 0 in directories that were made before there was one.
    """

    clean: bool
    directory_id: int
    logs: Mapping[str, LogRecord]
    bounds: Mapping[str, tuple[tuple[int, int], ...]]
    states: int = 0

    def encode(self) -> bytes:
        """The whole file."""
        logs = {name: log.as_json() | {"bounds": self.bounds[name]} for name, log in self.logs.items()}
        return seal({"clean": self.clean, "id": f"{self.directory_id:016x}", "logs": logs, "states": self.states})


def seal(content: Mapping[str, Any]) -> bytes:
    """JSON with the CRC of its content."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f'{{"crc32":{crc32(text.encode())},"content":{text}}}\n'.encode()


def unseal(data: bytes) -> dict[str, Any] | None:
    """The content, or None if it is not what was written."""
    try:
        outer = json.loads(data)
        content = outer["content"]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return content if isinstance(content, dict) and crc32(text.encode()) == outer["crc32"] else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def lock(files: Files, root: Path) -> int:
    """Take the data directory for this process; returns the descriptor that holds it.

    Raises:
        DirectoryLockedError: another process has it; names its pid.
    """
    path = root / LOCK_FILE
    fd = files.lock(path)
    if fd is None:
        pid = read_file(files, path).decode(errors="replace").strip() or "unknown"
        message = f"{root} is in use by process {pid}: stop it first, or give each its own data directory"
        raise DirectoryLockedError(message)
    files.truncate(fd, 0)
    files.pwritev(fd, [f"{os.getpid()}\n".encode()], 0)
    return fd


def read_format(files: Files, root: Path, checkpoint: Checkpoint | None, findings: list[Finding], *, repair: bool) -> Format | None:
    """What the data directory is; None if it is new. With `repair`, a lost file is written again from the checkpoint.

    Raises:
        StorageError: it is of another format, or nobody knows its id.
    """
    path = root / FORMAT_FILE
    content: dict[str, Any] | None = None
    try:
        content = unseal(read_file(files, path))
    except FileNotFoundError:
        if "logs" not in files.listdir(root):
            return None
    if content is not None and content.get("format") in {FORMAT, FORMAT_NUMBERED, FORMAT_FORMATS}:
        return Format(int(content["id"], 16), content["format"])
    if content is not None:
        formats = f"{FORMAT} to {FORMAT_FORMATS}"
        message = f"{path} says format {content.get('format')!r}, this program reads {formats}: use the version that wrote the directory"
        raise StorageError(message)
    if checkpoint is None:
        message = f"{path} is missing or damaged, and so is {CHECKPOINT_FILE}: restore one from a backup, or start with an empty directory"
        raise StorageError(message)
    findings.append(Finding(Severity.WARNING, FORMAT_FILE, None, f"is missing or damaged; {_AGAIN}"))
    if repair:
        write_format(files, root, Format(checkpoint.directory_id, FORMAT_FORMATS))  # it may have been
    return Format(checkpoint.directory_id, FORMAT_FORMATS)


def write_format(files: Files, root: Path, format_: Format) -> None:
    """Mark the directory as one of ours, durably."""
    content = {"format": format_.number, "id": f"{format_.directory_id:016x}"}
    replace_file(files, root / FORMAT_FILE, seal(content), sync=True)


def read_checkpoint(files: Files, root: Path, findings: list[Finding]) -> Checkpoint | None:
    """The last checkpoint; None if there is none to believe."""
    try:
        content = unseal(read_file(files, root / CHECKPOINT_FILE))
    except FileNotFoundError:
        if FORMAT_FILE in files.listdir(root):
            findings.append(Finding(Severity.WARNING, CHECKPOINT_FILE, None, "is missing; everything is checked as after a crash"))
        return None
    try:
        if content is not None:
            logs = {name: LogRecord.from_json(value) for name, value in content["logs"].items()}
            bounds = {name: tuple((int(low), int(high)) for low, high in value["bounds"]) for name, value in content["logs"].items()}
            return Checkpoint(bool(content["clean"]), int(content["id"], 16), logs, bounds, int(content.get("states", 0)))
    except (ValueError, KeyError, TypeError, ValidationError, AttributeError):
        pass
    findings.append(Finding(Severity.WARNING, CHECKPOINT_FILE, None, "is damaged; everything is checked as after a crash"))
    return None


def checkpoint_and_remove(files: Files, root: Path, checkpoint: Checkpoint, gone: Sequence[Path]) -> None:
    """Write a checkpoint, and then remove what it does not have any more."""
    path, data, full = root / CHECKPOINT_FILE, checkpoint.encode(), False
    try:
        replace_file(files, path, data, sync=True)
    except OSError as error:
        full = error.errno in FULL
        if not full:
            raise
    for one in gone:  # on a full disk these make the room that the checkpoint needs
        with contextlib.suppress(FileNotFoundError):
            files.unlink(one)
    if full and gone:
        replace_file(files, path, data, sync=True)


def read_log(files: Files, root: Path, name: str, *, checkpoint: Checkpoint | None, findings: list[Finding], repair: bool) -> LogRecord:
    """What the log in the folder `name` is, from its own file or else from the checkpoint; with `repair`, the file is written again.

    Raises:
        StorageError: neither knows it; names the file and what to do.
    """
    path = root / "logs" / name / LOG_FILE
    relative = str(path.relative_to(root))
    try:
        content = unseal(read_file(files, path))
        if content is not None:
            log = LogRecord.from_json(content)
            if log.name == name:
                return log
    except (FileNotFoundError, ValueError, KeyError, TypeError, ValidationError, AttributeError):
        pass
    if checkpoint and name in checkpoint.logs:
        findings.append(Finding(Severity.WARNING, relative, None, f"is missing or damaged; {_AGAIN}"))
        if repair:
            write_log(files, root / "logs" / name, checkpoint.logs[name])
        return checkpoint.logs[name]
    message = (
        f"{path} is missing or damaged and the checkpoint does not know the log: bring the file back from a backup, "
        f"or move the folder {path.parent} out of the data directory"
    )
    raise StorageError(message)


def write_log(files: Files, folder: Path, log: LogRecord) -> None:
    """Write a log's file, durably."""
    replace_file(files, folder / LOG_FILE, seal(log.as_json()), sync=True)


def remove_tree(files: Files, path: Path) -> None:
    """Remove a folder with what is in it."""
    for name in files.listdir(path):
        if files.is_dir(path / name):
            remove_tree(files, path / name)
        else:
            files.unlink(path / name)
    files.rmdir(path)
