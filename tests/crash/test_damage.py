"""Each kind of file x each kind of damage x closed cleanly or killed: the damage is repaired or reported, and
wrong data is never served.

Also: the store opens, or names the file that prevents it. Offsets that were visible are not used again if
anything on the disk still shows them. Events that are appended afterwards are kept.
"""

import copy
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import CorruptionError, StorageError
from amqp_streams.log_settings import Compression
from amqp_streams.storage import DirectoryStore, Severity
from amqp_streams.storage.catalog import seal
from amqp_streams.storage.ports import Partition
from amqp_streams.testing import FaultyFiles
from tests.amqp_streams.storage.conftest import NOW, ROOT, Hand, open_inline

LOG = ROOT / "logs" / "log"
STEPS = 130
Damage = Callable[[bytearray, random.Random], None]


def _truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def _empty(data: bytearray, rng: random.Random) -> None:
    data.clear()


def _garbage(data: bytearray, rng: random.Random) -> None:
    data[:] = rng.randbytes(len(data))


def _flip_bit(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _zero_block(data: bytearray, rng: random.Random) -> None:
    first = rng.randrange(len(data))
    block = min(512, len(data) - first)
    data[first : first + block] = bytes(block)


def _zero_all(data: bytearray, rng: random.Random) -> None:
    data[:] = bytes(len(data))


DAMAGES: dict[str, Damage | None] = {
    "truncated": _truncate,
    "emptied": _empty,
    "garbage": _garbage,
    "bit flip": _flip_bit,
    "zeroed block": _zero_block,
    "zeroed": _zero_all,
    "missing": None,
}


def _segments(files: FaultyFiles) -> list[Path]:
    return sorted(path for path in files.paths() if path.parent == LOG / "0" and path.suffix == ".log")


# The others leave nothing to chance: one run of them says all.
AT_RANDOM = {"truncated", "garbage", "bit flip", "zeroed block"}
SEEDS = 5

FILES: dict[str, Callable[[FaultyFiles], Path]] = {
    "first segment": lambda files: _segments(files)[0],
    "middle segment": lambda files: _segments(files)[1],
    "active segment": lambda files: _segments(files)[-1],
    "index of the first": lambda files: _segments(files)[0].with_suffix(".idx"),
    "index of the active": lambda files: next(
        (path for path in files.paths() if path == _segments(files)[-1].with_suffix(".idx")),
        _segments(files)[1].with_suffix(".idx"),
    ),
    "journal 0": lambda files: ROOT / "journal" / "0.journal",
    "journal 1": lambda files: ROOT / "journal" / "1.journal",
    "log.json": lambda files: LOG / "log.json",
    "checkpoint": lambda files: ROOT / "checkpoint.json",
    "format": lambda files: ROOT / "format.json",
    "lock": lambda files: ROOT / "lock",
    "states": lambda files: ROOT / "states",
    "ends": lambda files: ROOT / "ends",
}

Written = list[list[bytes]]


def _state(step: int) -> dict[str, bytes | None]:
    """One value that changes at each step, and one that is written once."""
    return {"often": b"%06d" % step * 20, f"once {step}": b"%d" % step}


COMPRESSED: dict[str, Callable[[FaultyFiles], Path]] = {
    "first compressed segment": lambda files: _compressed(files)[0],
    "last compressed segment": lambda files: _compressed(files)[-1],
    "index of the first compressed": lambda files: _compressed(files)[0].with_suffix(".idx"),
    "index of the last compressed": lambda files: _compressed(files)[-1].with_suffix(".idx"),
    "active segment": lambda files: _segments(files)[-1],
    "format": lambda files: ROOT / "format.json",
    "checkpoint": lambda files: ROOT / "checkpoint.json",
}


def _compressed(files: FaultyFiles) -> list[Path]:
    return sorted(path for path in files.paths() if path.parent == LOG / "0" and path.suffix == ".logz")


def _build(*, clean: bool, compression: Compression = Compression.NONE) -> tuple[FaultyFiles, Written]:
    """Three partitions: several segments, and when killed also records that only the journal has."""
    files = FaultyFiles()
    hand = open_inline(files)
    rng = random.Random(1)
    settings = LogSettings(partitions=3, segment_bytes=64 << 10, compression=compression)
    partitions = hand.store.create("log", settings, incarnation="i").partitions
    written: Written = [[], [], []]
    for step in range(STEPS):
        for partition in partitions:
            messages = [rng.randbytes(rng.randint(1, 900)) for _ in range(rng.randint(1, 4))]
            if compression is not Compression.NONE:  # random bytes do not compress
                messages = [each[:4] * (len(each) // 4 + 1) for each in messages]
            partition.append(messages, bytes(len(messages)), NOW)
            written[partition.index] += messages
        hand.commit()
        hand.store.states.write(_state(step))
        hand.loop.run_ready()
    for _ in range(20 if compression is not Compression.NONE else 0):
        hand.store.compress()
        hand.loop.run_ready()
    if clean:
        hand.store.close()
    files.kill()
    return files, written


BUILT_COMPRESSED = {clean: _build(clean=clean, compression=Compression.ZSTD) for clean in (True, False)}
BUILT = {clean: _build(clean=clean) for clean in (True, False)}


def _read_what_can_be(partition: Partition, written: list[bytes]) -> set[int]:
    """The offsets that are refused. All other records are served as written."""
    refused: set[int] = set()
    at = partition.start
    while at < partition.end:
        damage: CorruptionError | None = None
        try:
            chunk = partition.read(at, 10_000)
        except CorruptionError as error:
            damage = error
        if damage is not None:
            assert damage.after is not None
            assert damage.first == at < damage.after <= partition.end
            refused |= set(range(at, damage.after))
            at = damage.after
            continue
        assert chunk is not None
        assert chunk.base == at
        assert list(chunk.messages) == written[at : at + len(chunk)]
        at += len(chunk)
    return refused


def _damage(files: FaultyFiles, path: Path, damage: str, seed: int) -> None:
    change = DAMAGES[damage]
    if change is None:
        files.unlink(path)
        files.fsync_dir(path.parent)
    else:
        files.damage(path, lambda data: change(data, random.Random(seed)))


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", FILES)
def test_damage_is_recovered_or_reported_and_never_served(kind: str, damage: str, clean: bool) -> None:
    for seed in range(SEEDS if damage in AT_RANDOM else 1):
        files, written = copy.deepcopy(BUILT[clean])
        _damage(files, FILES[kind](files), damage, seed)
        _check(files, written, kind, clean=clean)


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", COMPRESSED)
def test_damage_to_compressed_segments_is_reported_and_never_served(
    kind: str, damage: str, clean: bool
) -> None:
    for seed in range(SEEDS if damage in AT_RANDOM else 1):
        files, written = copy.deepcopy(BUILT_COMPRESSED[clean])
        assert len(_compressed(files)) > 1
        _damage(files, COMPRESSED[kind](files), damage, seed)
        _check(files, written, kind, clean=clean)


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_a_flipped_bit_in_a_compressed_segment_costs_one_block(clean: bool) -> None:
    """As in a segment that is not compressed it costs one batch: the others are read."""
    for seed in range(40):
        files, written = copy.deepcopy(BUILT_COMPRESSED[clean])
        path = _compressed(files)[0]
        files.damage(path, lambda data, seed=seed: _flip_bit(data, random.Random(seed)))  # type: ignore[misc]
        hand = open_inline(files)
        refused = _read_what_can_be(hand.store.logs["log"].partitions[0], written[0])
        # A block has about a third of the segment, and the first of several segments was damaged.
        assert len(refused) < len(written[0]) // 3


def _check(files: FaultyFiles, written: Written, kind: str, *, clean: bool) -> None:
    try:
        hand = open_inline(files)
    except StorageError as error:
        pytest.fail(f"one damaged file is not a reason not to open: {error}")
    _check_states(hand, kind, clean=clean)
    lost = 0
    for partition in hand.store.logs["log"].partitions:
        ours = written[partition.index]
        refused = _read_what_can_be(partition, ours)
        lost += len(refused) + partition.start + max(0, len(ours) - partition.end)
        assert partition.end == len(ours), "the number of a lost record is not used again"
    severities = [finding.severity for finding in hand.store.findings]  # type: ignore[attr-defined]  # of a directory store
    # Damage in what an index covers is reported when it is read.
    assert not lost or Severity.DAMAGE in severities or kind.endswith("segment")
    _go_on(files, hand, written)


def _check_states(hand: Hand, kind: str, *, clean: bool) -> None:
    """Check that each value was written at some time. A lost value is reported, except at the end of a file
    after a kill, where it looks like a value that was never written.
    """
    assert isinstance(hand.store, DirectoryStore)
    found = dict(hand.store.states.items(""))
    assert found.pop("often", None) in (None, *[_state(step)["often"] for step in range(STEPS)])
    steps = sorted(int(key.removeprefix("once ")) for key in found)
    assert all(
        value == _state(step)[f"once {step}"]
        for step, value in ((step, found[f"once {step}"]) for step in steps)
    )
    findings = [finding.severity for finding in hand.store.findings if finding.file == "states"]
    assert not findings or kind == "states"
    if len(steps) < STEPS:
        assert kind == "states"
        assert Severity.DAMAGE in findings or (not clean and steps == list(range(len(steps))))


def _go_on(files: FaultyFiles, hand: Hand, written: Written) -> None:
    """Check that new events are kept, and that another opening finds the same."""
    before = []
    for partition in hand.store.logs["log"].partitions:
        base = hand.write(partition, b"after the damage")
        assert base is not None
        assert base >= partition.start
        before.append((base, partition.end))
    files.kill()
    again = open_inline(files)
    assert isinstance(again.store, DirectoryStore)
    for partition, (base, end) in zip(again.store.logs["log"].partitions, before, strict=True):
        assert partition.end == end
        expected = [*written[partition.index][:base], b"after the damage"]
        expected += [b""] * (end - len(expected))
        chunk = partition.read(base, 1000)
        assert chunk is not None
        assert chunk.messages[0] == b"after the damage"


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_foreign_files_are_left_alone_and_reported(clean: bool) -> None:
    files, written = copy.deepcopy(BUILT[clean])
    strangers = [
        ROOT / "notes.txt",
        ROOT / "logs" / "x",
        LOG / "0" / "core",
        LOG / "0" / "1.log",
        ROOT / "journal" / "old",
    ]
    for path in strangers:
        files.close(files.open(path, create=True))
        files.fsync_dir(path.parent)
    hand = open_inline(files)
    # Of a directory store.
    named = {finding.file for finding in hand.store.findings}  # type: ignore[attr-defined]
    assert named >= {str(path.relative_to(ROOT)) for path in strangers}
    assert set(strangers) <= set(files.paths())
    for partition in hand.store.logs["log"].partitions:
        assert not _read_what_can_be(partition, written[partition.index])


def test_damage_to_both_places_that_know_a_log_keeps_the_store_closed_with_a_remedy() -> None:
    files, _ = copy.deepcopy(BUILT[True])
    files.unlink(LOG / "log.json")
    files.unlink(ROOT / "checkpoint.json")
    with pytest.raises(StorageError, match=r"log\.json is missing or damaged.*backup"):
        open_inline(files)
    assert len(_segments(files)) > 2


def test_damage_to_both_places_that_know_the_directory_keeps_the_store_closed_with_a_remedy() -> None:
    files, _ = copy.deepcopy(BUILT[True])
    files.damage(ROOT / "format.json", lambda data: data.clear())
    files.unlink(ROOT / "checkpoint.json")
    with pytest.raises(StorageError, match=r"format\.json .*missing or damaged.*backup"):
        open_inline(files)


def test_a_directory_of_another_format_is_not_touched() -> None:
    files, _ = copy.deepcopy(BUILT[True])

    def change(data: bytearray) -> None:
        data[:] = seal({"format": 99, "id": "0" * 16})

    files.damage(ROOT / "format.json", change)
    with pytest.raises(StorageError, match=r"format 99.*use the version"):
        open_inline(files)
