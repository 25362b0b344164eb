"""[io] The data directory's small files: format, lock, checkpoint, and one `log.json` per log.

Law: each file is replaced as a whole and carries the CRC of its content, so that a flipped bit is detected.
The checkpoint also holds the content of every `log.json`: losing one of the two loses nothing.
"""

import contextlib
import json
import os
import pwd
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from amqp_streams.config import LogSettings
from amqp_streams.errors import DirectoryLockedError, StorageError
from amqp_streams.log_settings import BY_FIELD, LOG_NAME, Compression
from amqp_streams.storage.disk.files import Files, read_file, replace_file
from amqp_streams.storage.disk.space import FULL
from amqp_streams.storage.findings import Finding, Severity
from amqp_streams.storage.formats import record
from amqp_streams.storage.formats.checksum import crc32

FORMAT: Final = 1
FORMAT_NUMBERED: Final = 2
"""Format 2: batches and indexes may carry producer sequences.

Set by the first producer that numbers its events.
"""
FORMAT_FORMATS: Final = 3
"""Format 3: batches may carry message-formats. Set by the first message whose message-format is not 0."""
FORMAT_COMPRESSED: Final = 4
"""Format 4: closed segments may be compressed. Set before the first of them gets its name."""
FORMATS: Final = range(FORMAT, FORMAT_COMPRESSED + 1)
RESTORING: Final = "restoring"
"""Instead of a format: a restore has begun and not ended, and no version opens the directory."""
FORMAT_FILE: Final = "format.json"
LOCK_FILE: Final = "lock"
CHECKPOINT_FILE: Final = "checkpoint.json"
LOG_FILE: Final = "log.json"
QUARANTINE: Final = "quarantine"
"""The folder of files that `amqp-streams repair` moved out of the way or copied. The node never reads it."""
_COMPRESSION: Final = "compression"
_AGAIN: Final = "opening the store recreates it from the checkpoint"


class UncertainDeletionError(OSError):
    """The disk failed while a log was moved to the trash: after a crash, its folder may be in `trash` or in
    `logs`.
    """


class UnknownFormatError(StorageError):
    """A newer version wrote the data directory."""


def _bounded(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Bring stored settings within the current bounds: earlier versions had no upper bound."""
    return {
        name: min(value, BY_FIELD[name].most) if name in BY_FIELD and isinstance(value, int) else value
        for name, value in settings.items()
    }


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A log: its name, settings and ids. `uid` is the random number that the journal and the CRCs use."""

    name: str
    uid: int
    incarnation: str
    settings: LogSettings

    def seed(self, partition: int) -> int:
        """The initial value of the CRCs of a partition."""
        return record.seed_of(self.uid, partition)

    def as_json(self) -> dict[str, Any]:
        """The JSON form for the checkpoint and `log.json`."""
        settings = self.settings.model_dump(mode="json")
        # Not with the other settings: earlier versions refuse an unknown setting, and ignore this.
        compression = settings.pop(_COMPRESSION)
        return {
            "name": self.name,
            "uid": f"{self.uid:016x}",
            "incarnation": self.incarnation,
            "settings": settings,
        } | ({} if compression == Compression.NONE else {_COMPRESSION: compression})

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "LogRecord":
        """Raises ValueError, KeyError or TypeError if the value is not a valid log record."""
        if not LOG_NAME.fullmatch(value["name"]):
            raise ValueError(value["name"])
        return cls(
            value["name"],
            int(value["uid"], 16),
            value["incarnation"],
            LogSettings.model_validate(
                _bounded(value["settings"]) | {_COMPRESSION: value.get(_COMPRESSION, Compression.NONE)}
            ),
        )


@dataclass(frozen=True, slots=True)
class Format:
    """The content of `format.json`: the data directory's random id and the version of its file formats."""

    directory_id: int
    number: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A snapshot of the store: the logs and (start, end) of each partition.

    `clean`: the store was closed in order.

    `states`: size of the file of states in bytes; 0 in directories of versions without that file.
    """

    clean: bool
    directory_id: int
    logs: Mapping[str, LogRecord]
    bounds: Mapping[str, tuple[tuple[int, int], ...]]
    states: int = 0

    def encode(self) -> bytes:
        """The whole content of the checkpoint file."""
        logs = {name: log.as_json() | {"bounds": self.bounds[name]} for name, log in self.logs.items()}
        return seal(
            {"clean": self.clean, "id": f"{self.directory_id:016x}", "logs": logs, "states": self.states}
        )


def seal(content: Mapping[str, Any]) -> bytes:
    """Encode JSON together with the CRC of its content."""
    # The CRC is of this exact text. `unseal` encodes the parsed content again and must get the same text,
    # so the order of keys and the separators are fixed.
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f'{{"crc32":{crc32(text.encode())},"content":{text}}}\n'.encode()


def unseal(data: bytes) -> dict[str, Any] | None:
    """Decode the content, or return None if the CRC does not match."""
    try:
        outer = json.loads(data)
        content = outer["content"]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return content if isinstance(content, dict) and crc32(text.encode()) == outer["crc32"] else None
    # RecursionError: damage may look like deeply nested JSON.
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def lock(files: Files, root: Path) -> int:
    """Lock the data directory for this process; returns the descriptor that holds the lock.

    Raises:
        DirectoryLockedError: another process holds the lock; the message has its pid.
    """
    path = root / LOCK_FILE
    fd = files.lock(path)
    if fd is None:
        pid = read_file(files, path).decode(errors="replace").strip() or "unknown"
        message = f"{root} is in use by process {pid}: stop that process, or use another data directory"
        raise DirectoryLockedError(message)
    # The lock is the flock, which ends with the process. The pid is only for the message to the next
    # process, so a full disk must not end the start here.
    with contextlib.suppress(OSError):
        files.truncate(fd, 0)
        files.pwritev(fd, [f"{os.getpid()}\n".encode()], 0)
    return fd


def read_format(
    files: Files, root: Path, checkpoint: Checkpoint | None, findings: list[Finding], *, repair: bool
) -> Format | None:
    """Read `format.json`; None if the directory is new.

    With `repair`, a lost file is recreated from the checkpoint.

    Raises:
        StorageError: the format is unknown, or neither file has the directory's id.
    """
    path = root / FORMAT_FILE
    content: dict[str, Any] | None = None
    try:
        content = unseal(read_file(files, path))
    except FileNotFoundError:
        # `format.json` is written before the folder `logs` is created, so a directory with `logs` had the
        # file.
        if "logs" not in files.listdir(root):
            return None
    if content is not None and content.get("format") in FORMATS:
        return Format(int(content["id"], 16), content["format"])
    if content is not None and content.get("format") == RESTORING:
        message = (
            f"{root} is incomplete: the restore of backup {content.get('backup')!r} did not end. Run"
            f" `amqp-streams restore` again with the same arguments; it continues"
        )
        raise UnknownFormatError(message)
    if content is not None:
        formats = f"{FORMATS[0]} to {FORMATS[-1]}"
        message = (
            f"{path} has format {content.get('format')!r}, but this version reads formats {formats}: "
            "use the version that wrote the directory"
        )
        raise UnknownFormatError(message)
    if checkpoint is None:
        message = (
            f"{path} and {CHECKPOINT_FILE} are both missing or damaged: restore one of them from a backup, or"
            f" run `amqp-streams repair {root}`"
        )
        raise StorageError(message)
    findings.append(Finding(Severity.WARNING, FORMAT_FILE, None, f"is missing or damaged; {_AGAIN}"))
    if repair:
        # The highest format: the lost file may have had it, and an older version must not open data that it
        # cannot read.
        write_format(files, root, Format(checkpoint.directory_id, FORMATS[-1]))
    return Format(checkpoint.directory_id, FORMATS[-1])


def write_format(files: Files, root: Path, format_: Format) -> None:
    """Write `format.json` durably."""
    content = {"format": format_.number, "id": f"{format_.directory_id:016x}"}
    replace_file(files, root / FORMAT_FILE, seal(content), sync=True)


def read_checkpoint(files: Files, root: Path, findings: list[Finding]) -> Checkpoint | None:
    """The last checkpoint; None if it is missing or damaged."""
    try:
        content = unseal(read_file(files, root / CHECKPOINT_FILE))
    except FileNotFoundError:
        if FORMAT_FILE in files.listdir(root):
            words = "is missing; every file is checked as after a crash"
            findings.append(Finding(Severity.WARNING, CHECKPOINT_FILE, None, words))
        return None
    try:
        if content is not None:
            logs = {name: LogRecord.from_json(value) for name, value in content["logs"].items()}
            bounds = {
                name: tuple((int(low), int(high)) for low, high in value["bounds"])
                for name, value in content["logs"].items()
            }
            return Checkpoint(
                bool(content["clean"]), int(content["id"], 16), logs, bounds, int(content.get("states", 0))
            )
    except (ValueError, KeyError, TypeError, ValidationError, AttributeError):
        # The CRC matched, so another version wrote what this one does not understand. Like damage, it costs
        # only a check of every file.
        pass
    words = "is damaged; every file is checked as after a crash"
    findings.append(Finding(Severity.WARNING, CHECKPOINT_FILE, None, words))
    return None


def write_checkpoint(
    files: Files, root: Path, checkpoint: Checkpoint, *, make_space: Callable[[], None]
) -> None:
    """Write a checkpoint. `make_space` removes files, if the disk is full.

    Raises OSError: the disk failed, or is still full.
    """
    path, data = root / CHECKPOINT_FILE, checkpoint.encode()
    try:
        replace_file(files, path, data, sync=True)
    except OSError as error:
        if error.errno not in FULL:
            raise
        make_space()
        replace_file(files, path, data, sync=True)


def trash_of(root: Path, log: LogRecord) -> Path:
    """The path of the folder of a deleted log until its files are removed."""
    return root / "trash" / f"{log.uid:016x}"


def delete_log(files: Files, root: Path, log: LogRecord) -> None:
    """Move the folder of a log to the trash durably. `Checkpoints.submit` removes it from there.

    Works on a full disk: it writes no file. The checkpoint still has the log until then; the folder in the
    trash shows the next start that the log was deleted.

    Raises:
        UncertainDeletionError: the disk failed, and the folder could not be moved back durably.
        OSError: the disk failed, and the folder is in `logs` again.
    """
    folder, trash = root / "logs" / log.name, trash_of(root, log)
    files.rename(folder, trash)
    try:
        files.fsync_dir(root / "logs")
    except OSError as error:
        try:
            files.rename(trash, folder)
            files.fsync_dir(root / "logs")
        except OSError as again:
            raise UncertainDeletionError(again.errno, again.strerror, str(folder)) from error
        raise


def read_log(
    files: Files,
    root: Path,
    name: str,
    *,
    checkpoint: Checkpoint | None,
    findings: list[Finding],
    repair: bool,
) -> LogRecord:
    """The log in the folder `name`, from `log.json` or else from the checkpoint.

    `repair` recreates `log.json`.

    Raises:
        StorageError: neither has it; names the file and what to do.
    """
    path = root / "logs" / name / LOG_FILE
    relative = str(path.relative_to(root))
    try:
        content = unseal(read_file(files, path))
        if content is not None:
            log = LogRecord.from_json(content)
            # A copied or renamed folder has another log's name and ids: do not serve one log under two
            # names.
            if log.name == name:
                return log
    except (FileNotFoundError, ValueError, KeyError, TypeError, ValidationError, AttributeError):
        pass  # the checkpoint has the same content
    if checkpoint and name in checkpoint.logs:
        findings.append(Finding(Severity.WARNING, relative, None, f"is missing or damaged; {_AGAIN}"))
        if repair:
            write_log(files, root / "logs" / name, checkpoint.logs[name])
        return checkpoint.logs[name]
    message = (
        f"{path} is missing or damaged, and the checkpoint does not contain the log: restore the file from a"
        f" backup, or run `amqp-streams repair {root}`, which moves the log's folder aside"
    )
    raise StorageError(message)


def write_log(files: Files, folder: Path, log: LogRecord) -> None:
    """Write `log.json` of a log durably."""
    replace_file(files, folder / LOG_FILE, seal(log.as_json()), sync=True)


def create_log(files: Files, root: Path, log: LogRecord) -> None:
    """Create the folder of a log durably, with a folder for each partition.

    Raises:
        OSError: the disk failed; the log does not exist.
    """
    # Made in the trash and then renamed: after a crash, the log is complete, or the next start removes it.
    made, folder = root / "trash" / f"new-{log.uid:016x}", root / "logs" / log.name
    try:
        files.mkdir(made)
        for index in range(log.settings.partitions):
            files.mkdir(made / str(index))
        write_log(files, made, log)
        files.rename(made, folder)
        try:
            files.fsync_dir(root / "logs")
        except OSError:
            # Back into the trash: otherwise the next start finds a log whose creation failed.
            files.rename(folder, made)
            raise
    except OSError:
        # Clients repeat what failed, and on a full disk each attempt would leave its folders.
        with contextlib.suppress(OSError):
            remove_tree(files, made)
        raise


def update_log(files: Files, folder: Path, log: LogRecord, *, old: LogRecord) -> None:
    """Replace `log.json` of a log durably.

    Raises:
        OSError: the disk failed; the file has the settings of `old`, if the disk took them.
    """
    try:
        write_log(files, folder, log)
    except OSError:
        # The file may have its new content already, and the next start must not use settings that failed.
        with contextlib.suppress(OSError):
            write_log(files, folder, old)
        raise


def require_own(files: Files, path: Path, *names: str) -> None:
    """Check that a folder, and what it has of `names`, belongs to the user of this process or to root.

    Another owner could make this process write or delete elsewhere, by symbolic links.

    Raises:
        StorageError: it does not; names the owner.
    """
    # The folder itself may be a link, which the owner of the folder above made.
    found = path.resolve() if files.is_link(path) else path
    for each in (found, *(found / name for name in names)):
        try:
            owner = files.owner(each)
        except FileNotFoundError:
            continue
        effective = os.geteuid()
        if owner not in {effective, 0}:
            name, ours = _user(owner), _user(effective)
            message = (
                f"{each} belongs to user {name}, and this command runs as {ours}: run it as user {name}, or"
                f" use a folder of {ours}"
            )
            raise StorageError(message)


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def remove_tree(files: Files, path: Path) -> None:
    """Remove a folder with its content; of a symbolic link, the link only."""
    if files.is_link(path):
        files.unlink(path)
        return
    remove_content(files, path)
    files.rmdir(path)


def remove_content(files: Files, path: Path) -> None:
    """Remove everything in a folder. What a symbolic link in it names stays."""
    for name in files.listdir(path):
        if files.is_dir(path / name):
            remove_tree(files, path / name)
        else:
            files.unlink(path / name)
