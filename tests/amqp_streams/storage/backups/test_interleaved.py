"""From one seed: backups whose every file operation is between steps of a node that appends, moves records to
segments, compresses them, applies retention, writes states, and is killed; the backups are killed, too.

Invariants: each restored backup has every record that was accepted before it began, each with its number,
time, bytes and message-format, and no other record; the numbers of producers belong to them; the states are
those of a moment after the backup began, and no position is beyond the records. Whatever is killed, and at
each power loss, all complete backups stay whole. A node that continues from a restored backup is backed up to
the same folder.

`make crash` runs ROUNDS=50 seeds.
"""

import copy
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from amqp_streams.log_settings import Compression
from amqp_streams.storage import DirectoryStore, Severity
from amqp_streams.storage.backups import checking, creating, restoring
from amqp_streams.storage.backups.folder import Folder
from amqp_streams.testing import FaultyFiles, ManualLoop
from tests.amqp_streams.storage.conftest import ROOT
from tests.amqp_streams.storage.test_crashes import Crash, Model, World

FOLDER = Path("/backup")
TARGET = Path("/restored")
SEEDS = int(os.environ.get("CRASH_ROUNDS") or 6)
_INTERLEAVED = ("open", "pread", "listdir", "size", "stamp", "is_dir")


class Process(FaultyFiles):
    """The files of another process of the same machine. `between` is called before each look at the data."""

    def __init__(self, machine: FaultyFiles, between: Callable[[], None]) -> None:
        super().__init__()
        self._root = machine._root
        for name in _INTERLEAVED:
            setattr(self, name, partial(self._after, between, getattr(self, name)))

    def _after(
        self, between: Callable[[], None], operation: Callable[..., Any], *arguments: Any, **named: Any
    ) -> Any:
        between()
        return operation(*arguments, **named)


@dataclass
class Kept:
    """A complete backup, and what was known of the node when it began and ended."""

    name: str
    accepted: list[int]
    models: list[Model]
    states: list[dict[str, bytes]]


class BackedUp(World):
    """A world with backups."""

    def __init__(self, seed: int, compression: Compression = Compression.NONE) -> None:
        super().__init__(seed, compression)
        self.backups: list[Kept] = []
        self.killed = self.interrupted = self.returned = 0
        self.seen_states: list[dict[str, bytes]] | None = None
        self.lost_power = False

    def _step(self) -> None:
        chance = self.rng.random()
        if self.seen_states is None and chance < 0.06:
            self._back_up()
        elif self.seen_states is None and chance < 0.07 and self.backups:
            self._return_to(self.rng.choice(self.backups))
        else:
            super()._step()

    def _write_states(self) -> None:
        super()._write_states()
        # As a cursor: positions that are not beyond the accepted records.
        text = json.dumps([len(model.visible) for model in self.models]).encode()
        self.states.append(self.states[-1] | {"position": text})
        self.store.states.write({"position": text})

    def _back_up(self) -> None:
        busy = self.rng.choice([0.0, 0.05, 0.3])
        process = Process(self.files, partial(self._live, busy))
        deadline = self.rng.randrange(300) if self.rng.random() < 0.3 else -1
        process.fault = _ends_after(deadline)
        self.seen_states = list(self.states)
        accepted = [len(model.visible) for model in self.models]
        try:
            made = creating.create(
                process,
                ROOT,
                FOLDER,
                keep=self.rng.choice([None, 1, 3]),
                now_ms=lambda: self.now_ms,
            )
        except Crash:
            self.killed += 1
        else:
            assert not made.manifest.damage, made.manifest.damage
            states = [*self.seen_states, *self.states]
            self.backups.append(Kept(made.manifest.name, accepted, copy.deepcopy(self.models), states))
            if made.manifest.logs:
                self._check_restored(self.backups[-1], TARGET)
        finally:
            self.seen_states = None
        self._check_all()

    def _live(self, busy: float) -> None:
        """Steps of the node between two operations of the backup. It may be killed and start again."""
        if self.rng.random() >= busy:
            return
        try:
            self._step()
        except Crash:
            self.interrupted += 1
            self._recover()
        assert self.seen_states is not None
        self.seen_states += [each for each in self.states if each not in self.seen_states]

    def _recover(self) -> None:
        if self.seen_states is not None:
            # A power loss would end the backup as well: see `run`.
            self.files.kill()
            self.countdown = -1
            self._note_starts()
            self._open()
            return
        super()._recover()
        self._check_all()

    def _check_all(self) -> None:
        """Every backup that has its name is whole."""
        files = Process(self.files, lambda: None)
        folder = Folder(files, FOLDER)
        if folder.names():
            found = checking.check(folder)
            assert not found.faults, found.faults
            self.backups = [each for each in self.backups if each.name in found.whole]

    def _check_restored(self, kept: Kept, target: Path, *, replace: bool = False) -> None:
        files = Process(self.files, lambda: None)
        if files.is_dir(target) and not replace:
            _remove(files, target)
        restoring.restore(Folder(files, FOLDER), target, name=kept.name, replace=replace, tuning=self.tuning)
        loop = ManualLoop()
        store = DirectoryStore.open(
            target,
            loop_call=loop.call,
            now_ms=lambda: self.now_ms,
            files=files,
            tuning=self.tuning,
            threads=False,
        )
        worse = [each for each in store.findings if each.severity is not Severity.NOTE]
        assert not worse, worse
        assert dict(store.states.items("")) in kept.states
        kept.states = [dict(store.states.items(""))]
        positions = json.loads(store.states.get("position") or b"[0, 0, 0, 0, 0]")
        assert all(
            position <= partition.end
            for position, partition in zip(positions, store.logs["log"].partitions, strict=True)
        )
        for partition, model, accepted in zip(
            store.logs["log"].partitions, kept.models, kept.accepted, strict=True
        ):
            assert partition.start <= model.start
            assert partition.end >= accepted
            for number in range(len(model.visible), partition.end):
                model.visible.append(model.sent.pop(number)[:2])
            del model.visible[partition.end :]
            model.sent.clear()
            for lost in (model.numbered, model.forgetting):
                for number in [number for number in lost if number >= partition.end]:
                    del lost[number]
            model.start = partition.start
            self._compare_producers(partition, model)
            at = partition.start
            while at < partition.end:
                at = self._compare(partition, model, at, 1 << 20)
        kept.accepted = [len(model.visible) for model in kept.models]
        store.close()

    def _return_to(self, kept: Kept) -> None:
        """The node stops, and continues with the data of a backup."""
        self.returned += 1
        self.countdown = -1
        self._close()
        if "log" not in Folder(Process(self.files, lambda: None), FOLDER).manifest(kept.name).logs[0].name:
            return
        self._check_restored(kept, ROOT, replace=True)
        self.models = copy.deepcopy(kept.models)
        self.states = list(kept.states)
        self._open()


def _ends_after(operations: int) -> Callable[[str, Path], int]:
    left = operations

    def fault(operation: str, path: Path) -> int:
        nonlocal left
        if left == 0:
            left = -1
            raise Crash
        left -= left > 0
        return 0

    return fault


def _remove(files: FaultyFiles, path: Path) -> None:
    for name in files.listdir(path):
        if files.is_dir(path / name):
            _remove(files, path / name)
        else:
            files.unlink(path / name)
    files.rmdir(path)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_backup_between_all_steps_of_a_node_has_what_was_accepted_before_it(seed: int) -> None:
    world = BackedUp(seed)
    world.run(150)
    assert world.backups or world.killed


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_backup_has_what_was_accepted_while_segments_are_compressed(seed: int) -> None:
    world = BackedUp(seed, Compression.ZSTD)
    world.run(250)
    assert world.backups or world.killed


def test_the_simulation_reaches_what_it_is_for() -> None:
    worlds = [BackedUp(seed) for seed in (104, 132)]
    for world in worlds:
        world.run(100)
    assert sum(world.interrupted for world in worlds)
    assert sum(world.killed for world in worlds)
    assert sum(world.returned for world in worlds)
