"""Bits that flip on the disk: what cannot be read is refused and said, and nothing else is delivered for it.

Only files of closed segments and their indexes: what a start does with other files is in
`tests/crash/test_damage.py`.
"""

from pathlib import Path
from random import Random
from typing import Final

from amqp_streams.errors import CorruptionError
from amqp_streams.storage.ports import Chunk, Partition, Store
from amqp_streams.testing import FaultyFiles
from tests.simulation.checks.ledger import Ledger, Track

_FLIPS_MAX: Final = 4
READ_BYTES: Final = 10_000


def flip(files: FaultyFiles, random: Random) -> list[Path]:
    """Flip some bits in closed segments and indexes; returns the files."""
    segments = sorted(path for path in files.paths() if path.suffix == ".log")
    last = {path.parent: path for path in segments}
    found = [path for path in segments if path != last[path.parent]]
    found += sorted(path for path in files.paths() if path.suffix in {".idx", ".logz"})
    found = [path for path in found if files.content(path)]
    changed = random.choices(found, k=random.randint(1, _FLIPS_MAX)) if found else []
    for path in changed:
        files.damage(path, lambda data: _flip(data, random))
    return changed


def _flip(data: bytearray, random: Random) -> None:
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def require_true(store: Store, ledger: Ledger) -> int:
    """Each event that can be read is the one that was there; returns how many cannot be read."""
    refused = 0
    for (name, incarnation, index), track in ledger.tracks.items():
        stored = store.logs.get(name)
        if stored is None or stored.incarnation != incarnation:
            continue
        partition = stored.partitions[index]
        assert partition.end == track.end, f"{name}/{index} ends at {partition.end}, and ended at {track.end}"
        at = partition.start
        while at < partition.end:
            found = _read(partition, at)
            if isinstance(found, CorruptionError):
                assert found.after is not None
                assert found.first == at < found.after <= partition.end
                refused += found.after - at
                at = found.after
            else:
                assert found.base == at
                _require_same(track, at, list(found.messages))
                at += len(found)
    return refused


def _read(partition: Partition, at: int) -> Chunk | CorruptionError:
    try:
        chunk = partition.read(at, READ_BYTES)
    except CorruptionError as error:
        return error
    assert chunk is not None
    return chunk


def _require_same(track: Track, first: int, messages: list[bytes]) -> None:
    for offset, message in enumerate(messages, first):
        sent, _ = track.records[offset]
        assert message == sent.message, f"{track.log}/{track.index}@{offset} is delivered with flipped bits"
