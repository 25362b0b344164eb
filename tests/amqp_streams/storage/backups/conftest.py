"""A node in memory with two logs, and its backups."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.storage import DirectoryStore, Severity
from amqp_streams.storage.backups import creating, restoring
from amqp_streams.storage.backups.folder import Folder
from amqp_streams.testing import FaultyFiles, ManualLoop
from tests.amqp_streams.storage.conftest import NOW, ROOT, SMALL, Hand, entries, open_inline

FOLDER = Path("/backup")
TARGET = Path("/restored")
HOUR = 3_600_000
SETTINGS = LogSettings(partitions=3, segment_bytes=64 << 10)


class Machine:
    """A node with the logs `temps` and `other`, and another process with the same files."""

    def __init__(self) -> None:
        self.disk = FaultyFiles()
        self.files = FaultyFiles()
        self.files._root = self.disk._root
        self.hand = open_inline(self.disk)
        self.now_ms = NOW
        for name in ("temps", "other"):
            self.hand.store.create(name, SETTINGS, incarnation=f"of-{name}")

    @property
    def folder(self) -> Folder:
        return Folder(self.files, FOLDER)

    def fill(self, count: int, size: int = 100, log: str = "temps") -> None:
        """Accept events in each partition; the last ones are in the journal only."""
        for number in range(count):
            self.now_ms += 1
            for partition in self.hand.store.logs[log].partitions:
                text = b"%d of %d." % (number, partition.index)
                self.hand.write(partition, text.ljust(size, b"x"), now_ms=self.now_ms)

    def retain(self) -> None:
        """Let retention remove what it may."""
        for _ in range(6):
            self.now_ms += 1000 * HOUR
            self.hand.store.apply_retention(self.now_ms)
            self.hand.loop.run_ready()

    def back_up(self, **options: Any) -> creating.Made:
        return creating.create(self.files, ROOT, FOLDER, now_ms=lambda: self.now_ms, **options)

    def restore(self, target: Path = TARGET, **options: Any) -> restoring.Restored:
        return restoring.restore(self.folder, target, tuning=SMALL, **options)

    def content(self) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
        """Number and bytes of each event."""
        return content(self.hand)

    def restored(self, target: Path = TARGET) -> Hand:
        """A node with the restored directory, which has no damage."""
        hand = opened(self.files, target)
        assert isinstance(hand.store, DirectoryStore)
        assert not [each for each in hand.store.findings if each.severity is not Severity.NOTE]
        return hand


def content(hand: Hand) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
    logs = hand.store.logs
    return {(name, part.index): entries(part) for name, log in logs.items() for part in log.partitions}


def on_disk(machine: Machine, source: Path, target: Path) -> Path:
    """Write what a folder in memory has to a real one."""
    for path in machine.files.paths():
        if source in path.parents:
            written = target / path.relative_to(source)
            written.parent.mkdir(parents=True, exist_ok=True)
            written.write_bytes(machine.files.content(path))
    return target


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a path one of another user: root gives it away, anybody else becomes another user."""
    if os.geteuid():
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    else:
        os.chown(path, 65534, -1, follow_symlinks=False)


def opened(files: FaultyFiles, path: Path) -> Hand:
    loop = ManualLoop()
    store = DirectoryStore.open(
        path, loop_call=loop.call, now_ms=lambda: NOW, files=files, threads=False, tuning=SMALL
    )
    return Hand(store, loop)


@pytest.fixture
def machine() -> Iterator[Machine]:
    made = Machine()
    yield made
    made.hand.store.close()
