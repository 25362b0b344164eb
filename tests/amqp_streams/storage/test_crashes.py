"""From one seed: appends, commits, reads, retention, crashes at any operation, recovery that crashes again; checked against a model.

Laws checked after each opening: no accepted record is lost or changed, order is kept, numbers of visible records are never given out
again, and what was never accepted is either there as it was sent or not there at all.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.storage import Severity
from amqp_streams.storage.ports import Partition
from amqp_streams.testing import FaultyFiles
from tests.amqp_streams.storage.conftest import NOW, Hand, open_inline

PARTITIONS = 5


class Crash(BaseException):
    """The process ends here."""


@dataclass
class Model:
    """What one partition must hold."""

    visible: list[tuple[bytes, int]] = field(default_factory=list)
    sent: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    start: int = 0


class World:
    """The store, the model, and the fate of both."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.files = FaultyFiles()
        self.now_ms = NOW
        self.models = [Model() for _ in range(PARTITIONS)]
        self.settings = LogSettings(partitions=PARTITIONS, segment_bytes=64 << 10, segment_ms=50_000)
        if self.rng.random() < 0.5:
            self.settings = self.settings.model_copy(update={"retention_bytes": 1 << 20, "retention_ms": 400_000})
        self.countdown = -1
        self.files.fault = self._fault
        self.hand: Hand | None = None

    def _fault(self, operation: str, path: Path) -> int:
        if self.countdown == 0:
            self.countdown = -1
            raise Crash
        self.countdown -= self.countdown > 0
        return 0

    def run(self, steps: int) -> None:
        self._open()
        for _ in range(steps):
            if self.rng.random() < 0.03:
                self.countdown = self.rng.randrange(1, 40)
            try:
                self._step()
            except Crash:
                self._recover()
        self.countdown = -1
        self._recover()

    def _step(self) -> None:
        chance = self.rng.random()
        assert self.hand is not None
        if chance < 0.55:
            for _ in range(self.rng.choice([1, 1, 3, 20])):
                self._append(self.rng.randrange(PARTITIONS))
        elif chance < 0.85:
            self._commit()
        elif chance < 0.94:
            self._read()
        elif chance < 0.97:
            self.now_ms += self.rng.choice([1, 500, 100_000])
            for partition, before in self.hand.store.apply_retention(self.now_ms):
                assert before == self.models[partition.index].start
            self._note_starts()
        else:
            self.hand.store.close()
            self._adopt_sent()
            self._open()

    def _append(self, index: int) -> None:
        assert self.hand is not None
        partition = self.hand.store.logs["log"].partitions[index]
        size = self.rng.choice([0, 10, 10, 100, 1000, 9000, 40_000] if self.rng.random() < 0.2 else [10, 100])
        messages = [self.rng.randbytes(self.rng.randint(0, size)) for _ in range(self.rng.randint(1, 8))]
        model = self.models[index]
        base = partition.append(messages, bytes(min(255, len(message)) for message in messages), self.now_ms)
        assert base == len(model.visible) + len(model.sent)
        model.sent.update({base + place: (message, self.now_ms) for place, message in enumerate(messages)})

    def _commit(self) -> None:
        assert self.hand is not None
        done = self.hand.commit()
        assert done is None or not done.failures
        self._adopt_sent()

    def _adopt_sent(self) -> None:
        for model in self.models:
            model.visible += model.sent.values()
            model.sent.clear()

    def _note_starts(self) -> None:
        assert self.hand is not None
        for model, partition in zip(self.models, self.hand.store.logs["log"].partitions, strict=True):
            assert partition.start >= model.start
            model.start = partition.start

    def _read(self) -> None:
        assert self.hand is not None
        index = self.rng.randrange(PARTITIONS)
        partition, model = self.hand.store.logs["log"].partitions[index], self.models[index]
        assert (partition.start, partition.end) == (model.start, len(model.visible))
        if partition.end > partition.start:
            at = self.rng.randrange(partition.start, partition.end)
            self._compare(partition, model, at, self.rng.choice([1, 1000, 100_000]))
            after_ms = model.visible[at][1]
            naive = next((n for n in range(model.start, len(model.visible)) if model.visible[n][1] > after_ms), len(model.visible))
            assert partition.seek_timestamp(after_ms) == naive

    def _compare(self, partition: Partition, model: Model, at: int, bytes_max: int) -> int:
        chunk = partition.read(at, bytes_max)
        assert chunk is not None
        assert chunk.base == at
        expected = model.visible[at : at + len(chunk)]
        assert list(zip(chunk.messages, chunk.timestamps, strict=True)) == expected
        assert list(chunk.header_sizes) == [min(255, len(message)) for message, _ in expected]
        return at + len(chunk)

    def _recover(self) -> None:
        """The process is gone, and perhaps the power; and perhaps recovery is cut short, too."""
        while True:
            fate = self.rng.choice(["kill", "power", "parts"])
            if fate == "kill":
                self.files.kill()
            else:
                self.files.power_loss(self.rng if fate == "parts" else None)
            self.countdown = self.rng.randrange(1, 60) if self.rng.random() < 0.3 else -1
            try:
                self._open()
            except Crash:
                continue
            self.countdown = -1
            return

    def _open(self) -> None:
        self.hand = open_inline(self.files)
        damage = [finding for finding in self.hand.store.findings if finding.severity is Severity.DAMAGE]  # type: ignore[attr-defined]
        assert not damage, damage
        if "log" not in self.hand.store.logs:
            assert not any(model.visible for model in self.models)
            self.hand.store.create("log", self.settings, incarnation="i")
        for model, partition in zip(self.models, self.hand.store.logs["log"].partitions, strict=True):
            assert model.start <= partition.start <= partition.end
            assert partition.end >= len(model.visible)
            model.start = partition.start
            for number in range(len(model.visible), partition.end):
                model.visible.append(model.sent[number])
            model.sent.clear()
            at = partition.start
            while at < partition.end:
                at = self._compare(partition, model, at, 1 << 20)


@pytest.mark.parametrize("seed", range(40))
def test_no_accepted_record_is_lost_or_changed_whatever_crashes_when(seed: int) -> None:
    World(seed).run(150)
