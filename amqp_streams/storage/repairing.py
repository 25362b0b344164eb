"""[io] `amqp-streams repair`: make a damaged data directory open again, and report what is lost.

Laws: nothing is guessed, so a record counts only where its checksum proves it. Nothing is deleted: a file
that prevents the opening is moved to `quarantine/`, and a file with damaged records is copied there before
the store cuts or rewrites it. A directory that a newer version wrote is not touched.

Everything else is the opening itself, which every start of the node does as well: it cuts torn tails,
rebuilds indexes, and refuses reading where records are damaged.
"""

import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from amqp_streams.errors import StorageError
from amqp_streams.storage import catalog, inspect, offline, states
from amqp_streams.storage.catalog import Checkpoint, Format
from amqp_streams.storage.commits.flushing import Tuning
from amqp_streams.storage.commits.journal import FOLDER, read_all
from amqp_streams.storage.directory_store import DirectoryStore
from amqp_streams.storage.disk.files import Files, OpenFile, RealFiles, read_file, replace_file
from amqp_streams.storage.findings import Finding, Severity
from amqp_streams.storage.formats import journal_record, state_record
from amqp_streams.storage.opening import storage_error

REPORT_FILE: Final = "report.json"
_COPY_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = 4096


class Action(StrEnum):
    """What a step does with a file or folder."""

    MOVE = "move to the quarantine"
    COPY = "copy to the quarantine"
    WRITE = "write again"


@dataclass(frozen=True, slots=True)
class Step:
    """One change. `file` is relative to the data directory. `lost`: accepted data becomes unavailable."""

    action: Action
    file: str
    words: str
    lost: bool

    def __str__(self) -> str:
        return f"{self.action}: {self.file}: {self.words}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a repair does before it opens the directory.

    `directory_id`: the id for a `format.json` that is written again, else None. `findings`: the damage that
    `verify` sees; empty if the directory cannot be verified before the steps are done.
    """

    root: Path
    steps: Sequence[Step]
    findings: Sequence[Finding]
    directory_id: int | None


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result: where the quarantine is (None if nothing was moved or copied), and what remains lost.

    `lost`: the steps that made data unavailable, and the damage that `verify` still finds. Each range of
    records that it names stays refused: a reader gets an error that names the next readable offset.
    """

    quarantine: Path | None
    steps: Sequence[Step]
    lost: Sequence[str]


def plan(root: Path) -> Plan:
    """Find out what a repair would do. Changes nothing.

    Raises:
        DirectoryLockedError: a node has the directory open.
        StorageError: the path is not a data directory, a newer version wrote it, or it cannot be read.
    """
    files = RealFiles()
    with offline.unlocked(root, force=False):
        try:
            return _plan(files, root)
        except OSError as error:
            raise storage_error(root, error) from error


def repair(planned: Plan, *, name: str) -> Repaired:
    """Carry the plan out, open the directory as a node does, close it, and verify it.

    `name` is the folder in the quarantine; it must not exist. A crash in between is harmless: a second repair
    finds what remains.

    Raises:
        DirectoryLockedError: a node has the directory open.
        StorageError: the disk failed, or the opening needs something that the plan does not have.
    """
    files, root = RealFiles(), planned.root
    folder = root / catalog.QUARANTINE / name
    lock = catalog.lock(files, root)
    try:
        for step in planned.steps:
            _carry_out(files, root, folder, step, planned.directory_id)
    except OSError as error:
        raise storage_error(root, error) from error
    finally:
        # `DirectoryStore.open` below takes the lock itself. A node that starts in between does the same
        # opening.
        files.close(lock)
    DirectoryStore.open(root, loop_call=_at_once, threads=False, tuning=Tuning()).close()
    lost = [str(step) for step in planned.steps if step.lost]
    lost += [str(finding) for finding in inspect.verify(root) if finding.severity is Severity.DAMAGE]
    quarantined = folder if any(step.action is not Action.WRITE for step in planned.steps) else None
    if quarantined:
        report = {"steps": [asdict(step) for step in planned.steps], "lost": lost}
        replace_file(files, folder / REPORT_FILE, catalog.seal(report), sync=True)
    return Repaired(quarantined, planned.steps, lost)


def _plan(files: Files, root: Path) -> Plan:
    offline.must_be_ours(root)
    checkpoint = catalog.read_checkpoint(files, root, [])
    steps: list[Step] = []
    directory_id = _identity(files, root, checkpoint, steps)
    unknown_logs = list(_unknown_logs(files, root, checkpoint))
    steps += unknown_logs
    if unknown_logs:
        # The journal's records of these logs are dropped when its files are used again.
        steps += _journal_files(
            files, root, Action.COPY, "may have records of a log that is moved", lost=False
        )
    if directory_id is None:
        steps += _foreign_states(files, root, checkpoint)
    findings: list[Finding] = []
    if not steps:
        findings = [finding for finding in inspect.verify(root) if _is_damage(finding)]
        steps += _copies(root, findings)
    return Plan(root, steps, findings, directory_id)


def _identity(files: Files, root: Path, checkpoint: Checkpoint | None, steps: list[Step]) -> int | None:
    """The id for a lost `format.json`; None if the directory has one or the checkpoint knows it.

    Without the id, no checksum of the journal and of the states can be checked.
    """
    try:
        catalog.read_format(files, root, checkpoint, [], repair=False)
    except catalog.UnknownFormatError:
        raise
    except StorageError:
        pass  # neither file has the id: look for it elsewhere
    else:
        return None
    known = _id_in_states(files, root)
    if known is not None and not _fits_the_journal(files, root, known):
        known = None  # the file came from another directory
    words = "is missing or damaged, and so is the checkpoint"
    if known is not None:
        steps.append(
            Step(Action.WRITE, catalog.FORMAT_FILE, f"{words}; `states` has the directory's id", lost=False)
        )
        return known
    steps.append(Step(Action.WRITE, catalog.FORMAT_FILE, f"{words}; the directory gets a new id", lost=False))
    lost = "cannot be checked without the directory's id; records that are in no segment yet are lost"
    steps += _journal_files(files, root, Action.MOVE, lost, lost=True)
    if states.FILE in files.listdir(root):
        words = "cannot be checked without the directory's id; all cursors and epochs are lost"
        steps.append(Step(Action.MOVE, states.FILE, words, lost=True))
    return secrets.randbits(64)


def _id_in_states(files: Files, root: Path) -> int | None:
    try:
        return state_record.id_in_head(read_file(files, root / states.FILE))
    except FileNotFoundError:
        # No cursor and no epoch was ever written.
        return None


def _fits_the_journal(files: Files, root: Path, directory_id: int) -> bool:
    """Whether the id proves a record of the journal, or the journal has no record at all."""
    if any(read_all(files, root, journal_record.seed_of(directory_id), []).generations.values()):
        return True
    return not any(
        OpenFile(files, root / FOLDER / name).read(_HEAD_BYTES, 0).strip(b"\0")
        for name in files.listdir(root / FOLDER)
    )


def _journal_files(files: Files, root: Path, action: Action, words: str, *, lost: bool) -> Iterator[Step]:
    for name in files.listdir(root / FOLDER):
        yield Step(action, f"{FOLDER}/{name}", words, lost)


def _unknown_logs(files: Files, root: Path, checkpoint: Checkpoint | None) -> Iterator[Step]:
    """The logs whose name, id and settings are nowhere: without the id, no record can be checked."""
    for name in files.listdir(root / "logs"):
        if not files.is_dir(root / "logs" / name):
            continue
        try:
            catalog.read_log(files, root, name, checkpoint=checkpoint, findings=[], repair=False)
        except StorageError:
            words = f"{catalog.LOG_FILE} is missing or damaged, and the checkpoint does not contain the log"
            yield Step(Action.MOVE, f"logs/{name}", words, lost=True)


def _foreign_states(files: Files, root: Path, checkpoint: Checkpoint | None) -> Iterator[Step]:
    """A file of states that another data directory wrote, for example after a wrong copy."""
    format_ = catalog.read_format(files, root, checkpoint, [], repair=False)
    found = _id_in_states(files, root)
    if format_ is not None and found is not None and found != format_.directory_id:
        words = "belongs to another data directory; its cursors and epochs do not apply here"
        yield Step(Action.MOVE, states.FILE, words, lost=True)


def _copies(root: Path, findings: Sequence[Finding]) -> Iterator[Step]:
    """The opening may cut or rewrite a damaged file: keep it as it is for a closer look."""
    for name in dict.fromkeys(finding.file for finding in findings):
        if (root / name).is_file():
            yield Step(Action.COPY, name, "has damaged records", lost=False)


def _is_damage(finding: Finding) -> bool:
    return finding.severity is Severity.DAMAGE


def _carry_out(files: Files, root: Path, folder: Path, step: Step, directory_id: int | None) -> None:
    source, target = root / step.file, folder / step.file
    match step.action:
        case Action.WRITE:
            assert directory_id is not None, "only format.json is written again, with the plan's id"
            # The highest format: the lost file may have said so.
            catalog.write_format(files, root, Format(directory_id, catalog.FORMATS[-1]))
        case Action.MOVE:
            _make_folder(files, root, target.parent)
            files.rename(source, target)
            # The target first: after a power loss, the file must not be in neither folder.
            files.fsync_dir(target.parent)
            files.fsync_dir(source.parent)
        case Action.COPY:
            _make_folder(files, root, target.parent)
            _copy(source, target)
            files.fsync_dir(target.parent)


def _make_folder(files: Files, root: Path, folder: Path) -> None:
    for path in (*reversed(folder.relative_to(root).parents), folder.relative_to(root)):
        if not files.is_dir(root / path):
            files.mkdir(root / path)
            files.fsync_dir((root / path).parent)


def _copy(source: Path, target: Path) -> None:
    """Copy a file. Blocks of zeros become holes: a journal file is mostly zeros."""
    with source.open("rb") as reader, target.open("wb") as writer:
        while block := reader.read(_COPY_BYTES):
            if block.count(0) == len(block):
                writer.seek(len(block), os.SEEK_CUR)
            else:
                writer.write(block)
        writer.truncate(source.stat().st_size)
        writer.flush()
        os.fsync(writer.fileno())


def _at_once(function: object, *arguments: object) -> None:
    """Run the call at once: a repair has no event loop."""
    assert callable(function)
    function(*arguments)
